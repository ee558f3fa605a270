// Finds stop strings in text that arrives byte by byte (Aho, Corasick: Efficient string matching,
// 1975). Called by StopStrings, for the text of token paths, and by the coordinator's StopMatcher,
// for text that is streamed. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace coppice::tokenizer {

class StopAutomaton {
 public:
  static constexpr size_t kMostBytes = 65000;  // bytes of all stop strings together

  // The longest end of the text that is the beginning of a stop string. 0: no byte, as for an empty
  // text.
  using Node = uint16_t;

  // stops: none empty, at most kMostBytes in all.
  explicit StopAutomaton(absl::Span<const std::string> stops);

  Node Next(Node node, char byte) const;  // the node after one more byte
  // In bytes: the end of the text that is the beginning of a stop string.
  size_t begun(Node node) const { return nodes_[node].depth; }
  // In bytes: the longest stop string that ends there. 0 = none.
  size_t matched(Node node) const { return nodes_[node].matched; }

 private:
  // Of the trie of all stop strings. 0 = there is no such node.
  struct TrieNode {
    Node first_child = 0, next_sibling = 0;
    Node suffix = 0;  // the longest proper end that begins a stop string
    uint16_t depth = 0, matched = 0;
    char byte = 0;  // last byte of the node's text
  };

  Node Child(Node node, char byte) const;
  void AddStop(absl::string_view stop);
  void LinkSuffixes();

  std::vector<TrieNode> nodes_;
  std::array<Node, 256> first_;  // the root's children by byte: most moves begin there
};

}  // namespace coppice::tokenizer
