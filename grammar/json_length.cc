#include "grammar/json_length.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "grammar/automaton.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostRules = 20'000;

// A state of the automaton of the characters, with their number so far.
struct Counted {
  Automaton::State state = 0;
  int count = 0;
  bool escaped = false;  // the last byte was the backslash of an escape

  bool operator==(const Counted& other) const {
    return state == other.state && count == other.count && escaped == other.escaped;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Counted& c) {
    return H::combine(std::move(h), c.state, c.count, c.escaped);
  }
};

bool Continues(int byte) { return (byte & 0xc0) == 0x80; }

Part AnyOf(std::vector<std::pair<uint8_t, uint8_t>> bytes) {
  auto part = std::make_shared<Expression>();
  part->kind = Expression::Kind::kByte;
  part->bytes = std::move(bytes);
  return part;
}

}  // namespace

absl::StatusOr<Part> WithLength(const Part& characters, const CountLimits& limits,
                                JsonRules* rules) {
  COPPICE_ASSIGN_OR_RETURN(Automaton automaton, Automaton::Make({{characters}, {"characters"}}));
  const bool bounded = limits.most != Expression::kNoMost;
  const int counted = bounded ? limits.most : limits.least;  // more are not told apart
  absl::flat_hash_map<Counted, int> rule_of;
  std::deque<Counted> open;
  const auto rule = [&](const Counted& place) {
    const auto [known, added] = rule_of.try_emplace(place, 0);
    if (added) {
      known->second = rules->Add("characters");
      open.push_back(place);
    }
    return known->second;
  };
  const int first = rule({automaton.start(), 0, false});
  bool any = false;
  while (!open.empty()) {
    const Counted place = open.front();
    open.pop_front();
    if (rule_of.size() > kMostRules)
      return absl::InvalidArgumentError("with the limits of the length it is too large");
    std::map<int, std::vector<std::pair<uint8_t, uint8_t>>> bytes_to;  // by the rule that follows
    for (int byte = 0; byte < 256; ++byte) {
      const Automaton::State next = automaton.Next(place.state, static_cast<uint8_t>(byte));
      if (next == Automaton::kDead) continue;
      const bool begins = !Continues(byte) && !place.escaped;
      if (begins && bounded && place.count == limits.most) continue;
      const int count = std::min(place.count + (begins ? 1 : 0), counted);
      auto& ranges = bytes_to[rule({next, count, begins && byte == '\\'})];
      if (!ranges.empty() && ranges.back().second + 1 == byte) {
        ranges.back().second = static_cast<uint8_t>(byte);
      } else {
        ranges.emplace_back(byte, byte);
      }
    }
    std::vector<Part> choices;
    if (automaton.Complete(place.state) && place.count >= limits.least) {
      choices.push_back(Sequence({}));
      any = true;
    }
    for (auto& [follows, bytes] : bytes_to)
      choices.push_back(Sequence({AnyOf(std::move(bytes)), Rule(follows)}));
    rules->Set(rule_of[place], Choice(std::move(choices)));
  }
  if (!any || automaton.refusals() > 0)
    return absl::InvalidArgumentError("no text of it has the required length");
  return Rule(first);
}

}  // namespace coppice::grammar
