// The automaton of a grammar: after each byte, the set of places in its rules where the text may
// be. A place is a node of the network that represents the rules, with the calls that it will
// return to. States are made and numbered when they are first reached, so equal states have one
// number. Not thread-safe.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;  // no text of the grammar begins like this

  // Accepts the texts of the grammar that have only `writable` bytes. InvalidArgument: there is
  // none, the grammar is too large, a rule begins with itself, or too many ways lead to the first
  // byte.
  static absl::StatusOr<Automaton> Make(const Grammar& grammar,
                                        const std::bitset<256>& writable = AllBytes());
  static std::bitset<256> AllBytes() { return std::bitset<256>().set(); }

  State start() const { return start_; }
  // kDead, or a state from which a text of the grammar can be completed.
  State Next(State state, uint8_t byte);
  bool Complete(State state) const { return states_[state].complete; }
  // How often Next could not find the next state and returned kDead, because more states or work
  // would be needed than are allowed. States that are known stay known.
  int64_t refusals() const { return refusals_; }
  int64_t work() const { return work_; }  // places visited so far
  bool half_used() const;  // half of the allowed states or of the allowed work is used
  size_t bytes() const;    // approximate memory

 private:
  struct Node {
    enum class Kind : uint8_t { kByte, kSplit, kCall, kReturn };
    Kind kind = Kind::kSplit;
    std::array<uint64_t, 4> bytes{};  // kByte: its bytes
    std::vector<int32_t> next;        // kSplit: continues at any of them; else one
    int32_t rule = 0;                 // kCall: the rule that is called
    bool productive = false;          // a text leads from here to the end of the rule
    bool in_tokens = false;           // kByte: as in Expression
  };
  struct Call {
    int32_t node;    // node to return to
    int32_t parent;  // the enclosing call; 0: none
    bool operator==(const Call& other) const {
      return node == other.node && parent == other.parent;
    }
    template <typename H>
    friend H AbslHashValue(H h, const Call& call) {
      return H::combine(std::move(h), call.node, call.parent);
    }
  };
  using Places = std::vector<std::pair<int32_t, int32_t>>;  // node and call, ascending
  struct Stage {
    bool complete = false;
    const Places* places;            // nodes of kind kByte
    std::unique_ptr<State[]> moves;  // [num_classes_]; kUnknown: not yet asked for
  };
  static constexpr State kUnknown = -2;

  class Drawing;
  void FindProductive();
  void Restrict(const std::bitset<256>& writable);  // to these bytes; no node is productive then
  void ClassifyBytes();
  absl::Status CheckNoLeftRecursion(const Grammar& grammar) const;
  // All places that are reached from `places` without a byte. kUnknown: the limits do not allow it.
  State Close(Places places);
  int32_t Push(int32_t node, int32_t parent);

  std::vector<Node> nodes_;
  std::vector<int32_t> rule_begin_;  // [rules]
  std::vector<Call> calls_;
  absl::flat_hash_map<Call, int32_t> call_number_;
  std::vector<Stage> states_;
  absl::node_hash_map<std::pair<bool, Places>, State>
      state_number_;  // places of states_ point into it
  // Bytes that no node distinguishes form one class.
  std::array<uint8_t, 256> byte_class_{};
  int num_classes_ = 1;
  State start_ = kDead;
  int64_t work_ = 0;
  int64_t places_ = 0;  // sum of the places of all states
  int64_t refusals_ = 0;
};

}  // namespace coppice::grammar
