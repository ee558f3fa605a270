#include "grammar/json_schema.h"

#include "absl/status/status.h"

namespace coppice::grammar {

absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text) {
  return absl::UnimplementedError(text);
}

}  // namespace coppice::grammar
