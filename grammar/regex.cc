#include "grammar/regex.h"

#include "absl/status/status.h"

namespace coppice::grammar {

absl::StatusOr<Grammar> ReadRegex(absl::string_view text) { return absl::UnimplementedError(text); }

}  // namespace coppice::grammar
