// The characters that have a property of Unicode, as regular expressions name it. Any thread.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// name: what stands in \p{...}. A general category (L, Lu, Letter, Uppercase_Letter; also behind gc=
// or General_Category=), a common script (Latin, Greek, ...; also behind sc= or Script=), Any or
// ASCII. nullopt: another name. The first use of a name takes some 10 ms.
std::optional<CodePoints> CharactersOfProperty(absl::string_view name);

}  // namespace coppice::grammar
