#include "grammar/regex_conditions.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/status.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostNetwork = 1 << 16;  // nodes
constexpr size_t kMostRegexStates = 10'000;
constexpr int kDeepestPart = 8 * kMostNested;

// Follows one part (the whole, or a look) and the looks that it opens. States are numbered when
// they are first reached.
class ConditionMachines {
 public:
  static constexpr int kDead = -1;  // no text goes on from here
  static constexpr int kAll = -2;   // all texts do
  static constexpr int kWhole = 0;  // the machine of the whole; that of look i is i + 1

  ConditionMachines(const Grammar& grammar, const std::vector<Look>& looks, int64_t* work)
      : grammar_(grammar), looks_(looks), machines_(looks.size() + 1), work_(*work) {}

  absl::Status Make() {
    Node accept;
    accept.kind = Node::Kind::kAccept;
    COPPICE_ASSIGN_OR_RETURN(machines_[kWhole].begin,
                             Draw(*grammar_.rules[0], Add(std::move(accept))));
    for (size_t i = 0; i < looks_.size(); ++i) {
      Node done;
      done.kind = Node::Kind::kDone;
      COPPICE_ASSIGN_OR_RETURN(machines_[i + 1].begin, Draw(*looks_[i].part, Add(std::move(done))));
    }
    Classify();
    return absl::OkStatus();
  }

  // Rules for the states of the whole.
  absl::StatusOr<Grammar> Rules() {
    const absl::Status too_large =
        absl::InvalidArgumentError("the conditions of the regular expression need too many states");
    Grammar grammar;
    const int start = Start(kWhole, /*at_begin=*/true);
    if (spent_) return too_large;
    if (start == kDead) return Grammar{{Choice({})}, {"regex"}};
    const auto& states = machines_[kWhole].states;
    for (size_t at = 0; at < states.size(); ++at) {
      std::map<int, std::vector<std::pair<uint8_t, uint8_t>>> bytes_to;  // by the next state
      for (int byte = 0; byte < 256; ++byte) {
        const int next = Step(kWhole, static_cast<int>(at), class_of_[byte]);
        if (spent_) return too_large;
        if (next == kDead) continue;
        auto& ranges = bytes_to[next];
        if (!ranges.empty() && ranges.back().second + 1 == byte) {
          ranges.back().second = static_cast<uint8_t>(byte);
        } else {
          ranges.emplace_back(byte, byte);
        }
      }
      std::vector<Part> choices;
      if (Accepts(kWhole, static_cast<int>(at))) choices.push_back(Sequence({}));
      for (auto& [next, bytes] : bytes_to) {
        auto one = std::make_shared<Expression>();
        one->kind = Expression::Kind::kByte;
        one->bytes = std::move(bytes);
        choices.push_back(Sequence({std::move(one), Rule(next)}));
      }
      grammar.rules.push_back(Choice(std::move(choices)));
      grammar.names.emplace_back("regex");
    }
    return grammar;  // the start is state 0
  }

 private:
  using Bytes = std::array<uint64_t, 4>;
  struct Node {
    enum class Kind : uint8_t {
      kByte,
      kSplit,
      kBegin,   // passed where nothing stands before
      kEnd,     // passed where nothing follows
      kLook,    // opens a look
      kAccept,  // the whole may end here
      kDone,    // a look is fulfilled; anything may follow
    };
    Kind kind = Kind::kSplit;
    int look = 0;
    Bytes bytes{};
    std::vector<int> next;
  };
  using Duty = std::pair<int, int>;  // a look that is open, and the state of its machine
  struct Thread {
    int node = 0;
    bool ended = false;  // no byte may follow
    std::vector<Duty> duties;
    auto operator<=>(const Thread&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Thread& t) {
      return H::combine(std::move(h), t.node, t.ended, t.duties);
    }
  };
  using Threads = std::vector<Thread>;
  struct Machine {
    int begin = 0;
    absl::flat_hash_map<Threads, int> number;
    std::vector<Threads> states;
    std::vector<std::vector<int>> moves;  // [state][class]; kUnknown
  };
  static constexpr int kUnknown = -3;

  int Add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  int AddOf(Node::Kind kind, std::vector<int> next, int look = 0) {
    Node node;
    node.kind = kind;
    node.next = std::move(next);
    node.look = look;
    return Add(std::move(node));
  }

  // The node where a text begins that matches the part and then what begins at `after`.
  absl::StatusOr<int> Draw(const Expression& part, int after) {
    if (depth_ == kDeepestPart || nodes_.size() > kMostNetwork || !Spend(1))
      return absl::InvalidArgumentError("the regular expression is too large for its conditions");
    ++depth_;
    auto begin = DrawInside(part, after);
    --depth_;
    return begin;
  }

  absl::StatusOr<int> DrawInside(const Expression& part, int after) {
    switch (part.kind) {
      case Expression::Kind::kByte: {
        Node node;
        node.kind = Node::Kind::kByte;
        for (const auto& [first, last] : part.bytes) {
          for (int byte = first; byte <= last; ++byte)
            node.bytes[byte / 64] |= uint64_t{1} << (byte % 64);
        }
        node.next = {after};
        return Add(std::move(node));
      }
      case Expression::Kind::kSequence:
        for (size_t i = part.parts.size(); i-- > 0;) {
          COPPICE_ASSIGN_OR_RETURN(after, Draw(*part.parts[i], after));
        }
        return after;
      case Expression::Kind::kChoice: {
        std::vector<int> begins;
        for (const Part& one : part.parts) {
          COPPICE_ASSIGN_OR_RETURN(const int begin, Draw(*one, after));
          begins.push_back(begin);
        }
        return AddOf(Node::Kind::kSplit, std::move(begins));
      }
      case Expression::Kind::kRepeat:
        return DrawRepeat(part, after);
      case Expression::Kind::kRule:
        if (part.rule >= 0) return Draw(*grammar_.rules[part.rule], after);
        if (part.rule == kAtBegin) return AddOf(Node::Kind::kBegin, {after});
        if (part.rule == kAtEnd) return AddOf(Node::Kind::kEnd, {after});
        return AddOf(Node::Kind::kLook, {after}, kFirstLook - part.rule);
      case Expression::Kind::kAnyText:
        break;  // no regular expression has it
    }
    return after;
  }

  absl::StatusOr<int> DrawRepeat(const Expression& part, int after) {
    int begin = after;
    if (part.most == Expression::kNoMost) {
      const int loop = AddOf(Node::Kind::kSplit, {after});
      COPPICE_ASSIGN_OR_RETURN(const int body, Draw(*part.parts[0], loop));
      nodes_[loop].next.push_back(body);
      begin = loop;
    } else {
      for (int i = part.least; i < part.most; ++i) {
        COPPICE_ASSIGN_OR_RETURN(const int body, Draw(*part.parts[0], begin));
        begin = AddOf(Node::Kind::kSplit, {after, body});
      }
    }
    for (int i = 0; i < part.least; ++i) {
      COPPICE_ASSIGN_OR_RETURN(begin, Draw(*part.parts[0], begin));
    }
    return begin;
  }

  // Bytes that no node distinguishes form one class.
  void Classify() {
    absl::flat_hash_set<Bytes> sets;
    for (const Node& node : nodes_) {
      if (node.kind == Node::Kind::kByte) sets.insert(node.bytes);
    }
    for (const Bytes& set : sets) {
      std::map<std::pair<int, bool>, int> number;
      for (int byte = 0; byte < 256; ++byte) {
        const bool in = (set[byte / 64] >> (byte % 64) & 1) != 0;
        class_of_[byte] = number.try_emplace({class_of_[byte], in}, number.size()).first->second;
      }
    }
    for (int byte = 0; byte < 256; ++byte) byte_of_[class_of_[byte]] = byte;
  }

  bool Spend(size_t steps) {
    work_ -= static_cast<int64_t>(steps);
    spent_ = spent_ || work_ < 0;
    return !spent_;
  }

  int Start(int machine, bool at_begin) {
    return Close(machine, {{machines_[machine].begin, false, {}}}, at_begin);
  }

  // The state of what is reached from the threads without a byte.
  int Close(int machine, Threads open, bool at_begin) {
    absl::flat_hash_set<Thread> seen(open.begin(), open.end());
    Threads kept;
    while (!open.empty()) {
      Thread thread = std::move(open.back());
      open.pop_back();
      if (!Spend(1 + thread.duties.size())) return kDead;
      const Node& node = nodes_[thread.node];
      const auto reach = [&](int next) {
        Thread moved = thread;
        moved.node = next;
        if (seen.insert(moved).second) open.push_back(std::move(moved));
      };
      switch (node.kind) {
        case Node::Kind::kByte:
          if (!thread.ended) kept.push_back(std::move(thread));
          break;
        case Node::Kind::kSplit:
          for (const int next : node.next) reach(next);
          break;
        case Node::Kind::kBegin:
          if (at_begin) reach(node.next[0]);
          break;
        case Node::Kind::kEnd:
          thread.ended = true;
          reach(node.next[0]);
          break;
        case Node::Kind::kLook: {
          // A look that is opened after the end sees the empty text, like one before it.
          const int state = Start(node.look + 1, at_begin);
          if (AddDuty({node.look, state}, &thread.duties)) reach(node.next[0]);
          break;
        }
        case Node::Kind::kDone:
          if (!thread.ended && thread.duties.empty()) return kAll;
          [[fallthrough]];
        case Node::Kind::kAccept:
          kept.push_back(std::move(thread));
          break;
      }
    }
    return Number(machine, std::move(kept));
  }

  int Number(int machine, Threads threads) {
    if (threads.empty()) return kDead;
    std::sort(threads.begin(), threads.end());
    Machine& m = machines_[machine];
    const auto [known, added] =
        m.number.try_emplace(std::move(threads), static_cast<int>(m.states.size()));
    if (added) {
      m.states.push_back(known->first);
      m.moves.emplace_back();
      spent_ = spent_ || ++num_states_ > kMostRegexStates;
    }
    return known->second;
  }

  // false: the look fails. Looks that are decided are no duties.
  bool AddDuty(Duty duty, std::vector<Duty>* duties) const {
    const bool negative = looks_[duty.first].negative;
    if (duty.second == kDead) return negative;
    if (duty.second == kAll) return !negative;
    const auto at = std::lower_bound(duties->begin(), duties->end(), duty);
    if (at == duties->end() || *at != duty) duties->insert(at, duty);
    return true;
  }

  int Step(int machine, int state, int byte_class) {
    if (machines_[machine].moves[state].empty())
      machines_[machine].moves[state].assign(256, kUnknown);
    if (const int known = machines_[machine].moves[state][byte_class]; known != kUnknown)
      return known;
    const int byte = byte_of_[byte_class];
    Threads moved;
    const Threads threads = machines_[machine].states[state];
    for (const Thread& thread : threads) {
      const Node& node = nodes_[thread.node];
      const bool any = node.kind == Node::Kind::kDone;
      const bool takes =
          node.kind == Node::Kind::kByte && (node.bytes[byte / 64] >> (byte % 64) & 1) != 0;
      if (thread.ended || !(any || takes)) continue;
      Thread next{any ? thread.node : node.next[0], false, {}};
      bool alive = true;
      for (const auto& [look, at] : thread.duties) {
        if (!Spend(1)) return kDead;
        alive = alive && AddDuty({look, Step(look + 1, at, byte_class)}, &next.duties);
      }
      if (alive) moved.push_back(std::move(next));
    }
    const int next = Close(machine, std::move(moved), /*at_begin=*/false);
    machines_[machine].moves[state][byte_class] = next;
    return next;
  }

  // Whether a text may end in this state.
  bool Accepts(int machine, int state) const {
    for (const Thread& thread : machines_[machine].states[state]) {
      const Node::Kind kind = nodes_[thread.node].kind;
      if (kind != Node::Kind::kAccept && kind != Node::Kind::kDone) continue;
      bool fulfilled = true;
      for (const auto& [look, at] : thread.duties)
        fulfilled = fulfilled && Accepts(look + 1, at) != looks_[look].negative;
      if (fulfilled) return true;
    }
    return false;
  }

  const Grammar& grammar_;
  const std::vector<Look>& looks_;
  std::vector<Node> nodes_;
  std::vector<Machine> machines_;
  std::array<int, 256> class_of_{}, byte_of_{};
  int depth_ = 0;
  int64_t& work_;  // that is left
  size_t num_states_ = 0;
  bool spent_ = false;  // the limits are reached
};

}  // namespace

absl::StatusOr<Grammar> ResolveConditions(const Grammar& grammar, const std::vector<Look>& looks,
                                          int64_t* work) {
  ConditionMachines machines(grammar, looks, work);
  COPPICE_RETURN_IF_ERROR(machines.Make());
  return machines.Rules();
}

}  // namespace coppice::grammar
