// Conditions inside of a regular expression: look-ahead, and ^ and $ that do not stand at its ends.
// Made into rules without conditions, as a deterministic automaton that follows the expression and
// the conditions that are open. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// In the parts below, these rules stand for conditions.
inline constexpr int kAtBegin = -1;    // nothing stands before here
inline constexpr int kAtEnd = -2;      // nothing follows
inline constexpr int kFirstLook = -3;  // look i is rule kFirstLook - i

// What follows begins with a text of the part, or must not.
struct Look {
  Part part;
  bool negative = false;
};

// The texts of rule 0, as a grammar of its own. Rules of `grammar` may not refer to themselves. Every
// text of rule 0 must be one of whole characters. *work: steps that may be taken, less those that
// were. InvalidArgument: more of them, or too many states, are needed.
inline constexpr int64_t kMostConditionWork = 3'000'000;  // a second or two
absl::StatusOr<Grammar> ResolveConditions(const Grammar& grammar, const std::vector<Look>& looks,
                                          int64_t* work);

}  // namespace coppice::grammar
