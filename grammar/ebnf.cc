#include "grammar/ebnf.h"

#include "absl/status/status.h"

namespace coppice::grammar {

absl::StatusOr<Grammar> ReadEbnf(absl::string_view text) { return absl::UnimplementedError(text); }

}  // namespace coppice::grammar
