// Fields and methods that had another name in an earlier version. They are refused, and the message
// gives the new name. Pure; any thread.
#pragma once

#include "absl/strings/string_view.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {

// The name that a method has now. "": `name` is not an old name.
absl::string_view RenamedMethod(absl::string_view name);

// unknown_field for an old name in the object. Call it when all fields have been requested. Old
// names are also refused where unknown fields are ignored.
void RefuseRenamed(JsonFields* fields);

}  // namespace coppice::coordinator
