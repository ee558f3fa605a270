#include "tokenizer/stop_automaton.h"

#include <deque>

#include "base/check.h"

namespace coppice::tokenizer {

StopAutomaton::StopAutomaton(absl::Span<const std::string> stops) : nodes_(1) {
  first_.fill(0);
  for (const std::string& stop : stops) AddStop(stop);
  LinkSuffixes();
}

StopAutomaton::Node StopAutomaton::Child(Node node, char byte) const {
  if (node == 0) return first_[static_cast<unsigned char>(byte)];
  Node child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

StopAutomaton::Node StopAutomaton::Next(Node node, char byte) const {
  for (;;) {
    const Node child = Child(node, byte);
    if (child != 0 || node == 0) return child;
    node = nodes_[node].suffix;
  }
}

void StopAutomaton::AddStop(absl::string_view stop) {
  COPPICE_CHECK(!stop.empty());
  Node node = 0;
  for (const char byte : stop) {
    Node child = Child(node, byte);
    if (child == 0) {
      COPPICE_CHECK(nodes_.size() <= kMostBytes);
      child = static_cast<Node>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child,
                        .depth = static_cast<uint16_t>(nodes_[node].depth + 1),
                        .byte = byte});
      nodes_[node].first_child = child;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = child;
    }
    node = child;
  }
  nodes_[node].matched = nodes_[node].depth;
}

// From the root downwards: what ends at a suffix ends at the node too.
void StopAutomaton::LinkSuffixes() {
  std::deque<Node> todo = {0};
  for (; !todo.empty(); todo.pop_front()) {
    const Node parent = todo.front();
    for (Node node = nodes_[parent].first_child; node != 0; node = nodes_[node].next_sibling) {
      TrieNode& linked = nodes_[node];
      if (parent != 0) linked.suffix = Next(nodes_[parent].suffix, linked.byte);
      if (linked.matched == 0) linked.matched = nodes_[linked.suffix].matched;
      todo.push_back(node);
    }
  }
}

}  // namespace coppice::tokenizer
