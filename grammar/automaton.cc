#include "grammar/automaton.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/stop_automaton.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostNodes = 1 << 18;     // nodes of the network
constexpr int64_t kMostDrawn = 1 << 22;    // expressions drawn, some of which get no node
constexpr size_t kMostStates = 1 << 18;    // states that are kept
constexpr size_t kMostAtOnce = 1 << 15;    // places that are visited between two bytes
constexpr int64_t kMostWork = 8'000'000;   // places visited in all: a second or two
constexpr int kDeepest = 8 * kMostNested;  // depth of nested expressions

absl::Status Invalid(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace

// Draws the rules as a network. A counted repetition is drawn as many times as its count.
class Automaton::Drawing {
 public:
  Drawing(const Grammar& grammar, std::vector<Node>* nodes) : grammar_(grammar), nodes_(*nodes) {}

  absl::StatusOr<int32_t> DrawRule(int rule) {
    Node end;
    end.kind = Node::Kind::kReturn;
    return Draw(*grammar_.rules[rule], Add(std::move(end)));
  }

 private:
  int32_t Add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  int32_t AddSplit(std::vector<int32_t> next) {
    Node node;
    node.next = std::move(next);
    return Add(std::move(node));
  }

  // The node where a text begins that matches `expression` and then what begins at `after`.
  absl::StatusOr<int32_t> Draw(const Expression& expression, int32_t after) {
    if (depth_ == kDeepest) return Invalid("the format is nested too deeply");
    ++depth_;
    auto begin = DrawInside(expression, after);
    --depth_;
    return begin;
  }

  absl::StatusOr<int32_t> DrawInside(const Expression& expression, int32_t after) {
    if (nodes_.size() > kMostNodes || ++drawn_ > kMostDrawn)
      return Invalid("the format is too large");
    switch (expression.kind) {
      case Expression::Kind::kByte: {
        Node node;
        node.kind = Node::Kind::kByte;
        for (const auto& [first, last] : expression.bytes) {
          for (int byte = first; byte <= last; ++byte)
            node.bytes[byte / 64] |= uint64_t{1} << (byte % 64);
        }
        node.next = {after};
        node.in_tokens = expression.in_tokens;
        return Add(std::move(node));
      }
      case Expression::Kind::kAnyText:
        return DrawAnyText(expression, after);
      case Expression::Kind::kSequence: {
        for (size_t i = expression.parts.size(); i-- > 0;) {
          COPPICE_ASSIGN_OR_RETURN(after, Draw(*expression.parts[i], after));
        }
        return after;
      }
      case Expression::Kind::kChoice: {
        std::vector<int32_t> begins;
        for (const Part& part : expression.parts) {
          COPPICE_ASSIGN_OR_RETURN(const int32_t begin, Draw(*part, after));
          begins.push_back(begin);
        }
        return AddSplit(std::move(begins));
      }
      case Expression::Kind::kRepeat:
        return DrawRepeat(expression, after);
      case Expression::Kind::kRule: {
        if (expression.rule < 0 || expression.rule >= static_cast<int>(grammar_.rules.size()))
          return Invalid("a rule that is not there");
        Node node;
        node.kind = Node::Kind::kCall;
        node.rule = expression.rule;
        node.next = {after};
        return Add(std::move(node));
      }
    }
    return Invalid("an unknown expression");
  }

  absl::StatusOr<int32_t> DrawRepeat(const Expression& expression, int32_t after) {
    const Expression& part = *expression.parts[0];
    int32_t begin = after;
    if (expression.most == Expression::kNoMost) {
      begin = AddSplit({after});  // leads to `after`; the loop is added below
      COPPICE_ASSIGN_OR_RETURN(const int32_t again, Draw(part, begin));
      nodes_[begin].next.push_back(again);
    } else {
      for (int i = expression.least; i < expression.most; ++i) {
        COPPICE_ASSIGN_OR_RETURN(const int32_t once, Draw(part, begin));
        begin = AddSplit({after, once});
      }
    }
    for (int i = 0; i < expression.least; ++i) {
      COPPICE_ASSIGN_OR_RETURN(begin, Draw(part, begin));
    }
    return begin;
  }

  // How far a text is on its way to what is excluded: the state of the search for the texts inside,
  // and the number of its bytes while it may still become one of those that it must not begin with.
  struct Way {
    tokenizer::StopAutomaton::Node inside = 0;
    std::string begun;
    bool begins = true;
    auto operator<=>(const Way&) const = default;
  };

  // One split for each way, from which `after` is reached too.
  absl::StatusOr<int32_t> DrawAnyText(const Expression& expression, int32_t after) {
    size_t bytes = 0;
    std::set<std::string> beginnings;  // of the texts that it does not begin with
    for (const std::string& text : expression.without) bytes += text.size();
    for (const std::string& text : expression.not_begins) {
      bytes += text.size();
      if (bytes > kMostExcluded) break;
      for (size_t size = 0; size <= text.size(); ++size) beginnings.insert(text.substr(0, size));
    }
    if (bytes > kMostExcluded) return Invalid("the texts that must not occur are too long");
    const std::set<std::string> refused(expression.not_begins.begin(), expression.not_begins.end());
    const tokenizer::StopAutomaton search(expression.without);
    std::map<Way, int32_t> split_of;
    std::vector<Way> open;
    const auto reach = [&](const Way& way) {
      const auto [known, added] = split_of.try_emplace(way, 0);
      if (added) {
        known->second = AddSplit({after});
        open.push_back(way);
      }
      return known->second;
    };
    const int32_t begin = reach(Way{0, "", !beginnings.empty()});
    while (!open.empty()) {
      const Way way = open.back();
      open.pop_back();
      std::map<Way, int32_t> byte_node;  // by where it leads
      for (int byte = 0; byte < 256; ++byte) {
        const auto c = static_cast<char>(byte);
        Way next{search.Next(way.inside, c), way.begins ? way.begun + c : "", way.begins};
        if (next.begins && beginnings.count(next.begun) == 0) next = {next.inside, "", false};
        if (search.matched(next.inside) > 0 || (next.begins && refused.count(next.begun) > 0))
          continue;
        const auto [known, added] = byte_node.try_emplace(next, 0);
        if (added) {
          Node node;
          node.kind = Node::Kind::kByte;
          node.in_tokens = true;
          node.next = {reach(next)};
          known->second = Add(std::move(node));
          nodes_[split_of[way]].next.push_back(known->second);
        }
        nodes_[known->second].bytes[byte / 64] |= uint64_t{1} << (byte % 64);
      }
      if (nodes_.size() > kMostNodes) return Invalid("the format is too large");
    }
    return begin;
  }

  const Grammar& grammar_;
  std::vector<Node>& nodes_;
  int64_t drawn_ = 0;
  int depth_ = 0;
};

absl::StatusOr<Automaton> Automaton::Make(const Grammar& grammar,
                                          const std::bitset<256>& writable) {
  Automaton automaton;
  Drawing drawing(grammar, &automaton.nodes_);
  for (size_t rule = 0; rule < grammar.rules.size(); ++rule) {
    COPPICE_ASSIGN_OR_RETURN(const int32_t begin, drawing.DrawRule(static_cast<int>(rule)));
    automaton.rule_begin_.push_back(begin);
  }
  const auto has_text = [&automaton] {
    automaton.FindProductive();
    return automaton.nodes_[automaton.rule_begin_[0]].productive;
  };
  if (!has_text()) return Invalid("no text has the format");
  COPPICE_RETURN_IF_ERROR(automaton.CheckNoLeftRecursion(grammar));
  if (!writable.all()) {
    automaton.Restrict(writable);
    if (!has_text()) return Invalid("the vocabulary can write no text that has the format");
  }
  automaton.ClassifyBytes();
  automaton.calls_.push_back({-1, 0});
  automaton.start_ = automaton.Close({{automaton.rule_begin_[0], 0}});
  if (automaton.start_ < 0) return Invalid("too many ways lead to the first byte of a text");
  return automaton;
}

void Automaton::Restrict(const std::bitset<256>& writable) {
  for (Node& node : nodes_) {
    node.productive = false;
    if (node.in_tokens) continue;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (!writable[byte]) node.bytes[byte / 64] &= ~(uint64_t{1} << (byte % 64));
    }
  }
}

void Automaton::ClassifyBytes() {
  absl::flat_hash_set<std::array<uint64_t, 4>> sets;
  for (const Node& node : nodes_) {
    if (node.kind == Node::Kind::kByte) sets.insert(node.bytes);
  }
  for (const std::array<uint64_t, 4>& set : sets) {
    std::array<int16_t, 512> number;  // class by the class before and the membership
    number.fill(-1);
    int16_t next = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      const size_t in = set[byte / 64] >> (byte % 64) & 1;
      int16_t& own = number[byte_class_[byte] * 2 + in];
      if (own < 0) own = next++;
      byte_class_[byte] = static_cast<uint8_t>(own);
    }
    num_classes_ = next;
    if (num_classes_ == 256) return;
  }
}

// A node is productive if some text leads from it to the end of its rule. Each node is checked
// again when a node that it needs has become productive.
void Automaton::FindProductive() {
  const auto is = [this](int32_t node) { return nodes_[node].productive; };
  std::vector<std::vector<int32_t>> needed_by(nodes_.size());
  std::vector<int32_t> open;
  for (int32_t at = 0; at < static_cast<int32_t>(nodes_.size()); ++at) {
    const Node& node = nodes_[at];
    for (const int32_t next : node.next) needed_by[next].push_back(at);
    if (node.kind == Node::Kind::kCall) needed_by[rule_begin_[node.rule]].push_back(at);
    if (node.kind == Node::Kind::kReturn) open.push_back(at);
  }
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    Node& node = nodes_[at];
    if (node.productive) continue;
    switch (node.kind) {
      case Node::Kind::kReturn:
        node.productive = true;
        break;
      case Node::Kind::kByte:
        node.productive = is(node.next[0]) &&
                          (node.bytes[0] | node.bytes[1] | node.bytes[2] | node.bytes[3]) != 0;
        break;
      case Node::Kind::kSplit:
        node.productive = std::any_of(node.next.begin(), node.next.end(), is);
        break;
      case Node::Kind::kCall:
        node.productive = is(rule_begin_[node.rule]) && is(node.next[0]);
        break;
    }
    if (node.productive) open.insert(open.end(), needed_by[at].begin(), needed_by[at].end());
  }
}

// A rule that begins with itself would be called forever.
absl::Status Automaton::CheckNoLeftRecursion(const Grammar& grammar) const {
  const auto rules = static_cast<int32_t>(rule_begin_.size());
  // Nodes at the beginning of their rule. What follows a call is one of them once the called
  // rule is known to have the empty text.
  std::vector<bool> empty(rules, false), at_begin(nodes_.size(), false);
  std::vector<absl::flat_hash_set<int32_t>> called(rules);
  // [rules] pairs of rule and node that wait for it.
  std::vector<std::vector<std::pair<int32_t, int32_t>>> waiting(rules);
  std::vector<std::pair<int32_t, int32_t>> open;
  const auto reach = [&](int32_t rule, int32_t node) {
    if (!nodes_[node].productive || at_begin[node]) return;
    at_begin[node] = true;
    open.emplace_back(rule, node);
  };
  for (int32_t rule = 0; rule < rules; ++rule) reach(rule, rule_begin_[rule]);
  while (!open.empty()) {
    const auto [rule, at] = open.back();
    open.pop_back();
    const Node& node = nodes_[at];
    if (node.kind == Node::Kind::kReturn && !empty[rule]) {
      empty[rule] = true;
      for (const auto& [caller, after] : waiting[rule]) reach(caller, after);
    } else if (node.kind == Node::Kind::kSplit) {
      for (const int32_t next : node.next) reach(rule, next);
    } else if (node.kind == Node::Kind::kCall) {
      called[rule].insert(node.rule);
      waiting[node.rule].emplace_back(rule, node.next[0]);
      if (empty[node.rule]) reach(rule, node.next[0]);
    }
  }
  // Rules whose callees are all done are done. A rule that is left begins with itself, or calls
  // such a rule: a path through the remaining rules comes back.
  std::vector<std::vector<int32_t>> callers(rules);
  std::vector<size_t> left(rules);
  std::vector<int32_t> done;
  for (int32_t rule = 0; rule < rules; ++rule) {
    for (const int32_t callee : called[rule]) callers[callee].push_back(rule);
    left[rule] = called[rule].size();
    if (left[rule] == 0) done.push_back(rule);
  }
  for (size_t i = 0; i < done.size(); ++i) {
    for (const int32_t caller : callers[done[i]]) {
      if (--left[caller] == 0) done.push_back(caller);
    }
  }
  if (done.size() == static_cast<size_t>(rules)) return absl::OkStatus();
  int32_t at = 0;
  while (left[at] == 0) ++at;
  absl::flat_hash_set<int32_t> passed;
  while (passed.insert(at).second) {
    at = *std::find_if(called[at].begin(), called[at].end(),
                       [&](int32_t callee) { return left[callee] > 0; });
  }
  return Invalid(absl::StrCat("rule ", grammar.names[at], " begins with itself"));
}

int32_t Automaton::Push(int32_t node, int32_t parent) {
  const Call call{node, parent};
  const auto [at, added] = call_number_.try_emplace(call, static_cast<int32_t>(calls_.size()));
  if (added) calls_.push_back(call);
  return at->second;
}

Automaton::State Automaton::Close(Places places) {
  absl::flat_hash_set<std::pair<int32_t, int32_t>> seen;
  Places open, kept;
  bool complete = false;
  const auto reach = [&](int32_t node, int32_t call) {
    if (nodes_[node].productive && seen.insert({node, call}).second) open.emplace_back(node, call);
  };
  for (const auto& [node, call] : places) reach(node, call);
  while (!open.empty()) {
    const auto [at, call] = open.back();
    open.pop_back();
    if (++work_ > kMostWork || seen.size() > kMostAtOnce) return kUnknown;
    const Node& node = nodes_[at];
    switch (node.kind) {
      case Node::Kind::kByte:
        kept.emplace_back(at, call);
        break;
      case Node::Kind::kSplit:
        for (const int32_t next : node.next) reach(next, call);
        break;
      case Node::Kind::kCall: {
        // A call at the end of a rule returns to where the rule itself would.
        const bool last = nodes_[node.next[0]].kind == Node::Kind::kReturn;
        if (nodes_[node.next[0]].productive)
          reach(rule_begin_[node.rule], last ? call : Push(node.next[0], call));
        break;
      }
      case Node::Kind::kReturn:
        if (call == 0) {
          complete = true;
        } else {
          const Call to = calls_[call];
          reach(to.node, to.parent);
        }
        break;
    }
  }
  if (kept.empty() && !complete) return kDead;
  std::sort(kept.begin(), kept.end());
  const auto [known, added] = state_number_.try_emplace(std::make_pair(complete, std::move(kept)),
                                                        static_cast<State>(states_.size()));
  if (added) {
    if (states_.size() >= kMostStates) {
      state_number_.erase(known);
      return kUnknown;
    }
    places_ += static_cast<int64_t>(known->first.second.size());
    states_.push_back({complete, &known->first.second, nullptr});
  }
  return known->second;
}

bool Automaton::half_used() const {
  return refusals_ > 0 || states_.size() > kMostStates / 2 || work_ > kMostWork / 2;
}

size_t Automaton::bytes() const {
  return nodes_.size() * (sizeof(Node) + sizeof(int32_t)) + calls_.size() * 4 * sizeof(Call) +
         static_cast<size_t>(places_) * sizeof(Places::value_type) +
         states_.size() * (2 * sizeof(Stage) + sizeof(Places) + sizeof(State) * num_classes_);
}

Automaton::State Automaton::Next(State state, uint8_t byte) {
  if (state < 0) return kDead;
  if (states_[state].moves == nullptr) {
    states_[state].moves = std::make_unique<State[]>(num_classes_);
    std::fill_n(states_[state].moves.get(), num_classes_, kUnknown);
  }
  const uint8_t move = byte_class_[byte];
  const State known = states_[state].moves[move];
  if (known != kUnknown) return known;
  Places places;
  for (const auto& [at, call] : *states_[state].places) {
    const Node& node = nodes_[at];
    ++work_;
    if ((node.bytes[byte / 64] >> (byte % 64) & 1) != 0) places.emplace_back(node.next[0], call);
  }
  const State next = places.empty() ? kDead : Close(std::move(places));
  if (next == kUnknown) {
    ++refusals_;
    return kDead;
  }
  states_[state].moves[move] = next;
  return next;
}

}  // namespace coppice::grammar
