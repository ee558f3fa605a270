#include "grammar/token_grammar.h"

#include <algorithm>
#include <utility>

namespace coppice::grammar {
namespace {

constexpr size_t kMostKept = 4096;  // sets of tokens that are kept

}  // namespace

TokenGrammar::TokenGrammar(std::shared_ptr<const TokenTrie> trie, Automaton automaton,
                           std::vector<TokenId> ends)
    : trie_(std::move(trie)),
      ends_([&ends] {
        std::sort(ends.begin(), ends.end());
        return std::move(ends);
      }()),
      automaton_(std::move(automaton)) {}

OutputFormat::State TokenGrammar::Next(State state, TokenId token) const {
  if (state < 0 || std::binary_search(ends_.begin(), ends_.end(), token)) return kBroken;
  const absl::string_view bytes = trie_->Bytes(token);
  if (bytes.empty()) return kBroken;
  const std::lock_guard<std::mutex> lock(lock_);
  for (const char byte : bytes) state = automaton_.Next(state, static_cast<uint8_t>(byte));
  return state < 0 ? kBroken : state;
}

std::shared_ptr<const AllowedTokens> TokenGrammar::Allowed(State state) const {
  if (state < 0) return nullptr;
  const std::lock_guard<std::mutex> lock(lock_);
  const auto known = allowed_.find(state);
  if (known != allowed_.end()) return known->second;
  if (allowed_.size() >= kMostKept) allowed_.clear();
  const int64_t refusals = automaton_.refusals();
  auto allowed = std::make_shared<const AllowedTokens>(Walk(state));
  if (automaton_.refusals() > refusals) cut_short_.insert(state);
  return allowed_.emplace(state, std::move(allowed)).first->second;
}

// The lock is held.
AllowedTokens TokenGrammar::Walk(State state) const {
  AllowedTokens allowed;
  allowed.bits.resize((trie_->vocab_size() + 63) / 64);
  const auto add = [&allowed](TokenId token) {
    allowed.bits[token / 64] |= uint64_t{1} << (token % 64);
  };
  const absl::Span<const TokenTrie::Node> nodes = trie_->nodes();
  std::vector<State> after(trie_->deepest() + 1);
  after[0] = state;
  for (size_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const State next = automaton_.Next(after[node.depth - 1], node.byte);
    if (next < 0) {
      i = node.end;
      continue;
    }
    after[node.depth] = next;
    for (int32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) add(trie_->tokens()[t]);
    ++i;
  }
  for (const TokenId end : ends_) {
    if (end < 0 || static_cast<size_t>(end) / 64 >= allowed.bits.size()) continue;
    allowed.bits[end / 64] &= ~(uint64_t{1} << (end % 64));
    if (automaton_.Complete(state)) add(end);
  }
  for (size_t word = 0; word < allowed.bits.size(); ++word)
    allowed.count += __builtin_popcountll(allowed.bits[word]);
  if (allowed.count > AllowedTokens::kMostListed) return allowed;
  for (size_t word = 0; word < allowed.bits.size(); ++word) {
    for (uint64_t bits = allowed.bits[word]; bits != 0; bits &= bits - 1) {
      allowed.listed.push_back(static_cast<TokenId>(word * 64 + __builtin_ctzll(bits)));
    }
  }
  return allowed;
}

bool TokenGrammar::CutShort(State state) const {
  const std::lock_guard<std::mutex> lock(lock_);
  return cut_short_.contains(state);
}

bool TokenGrammar::worn() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return automaton_.half_used();
}

size_t TokenGrammar::bytes() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return automaton_.bytes() + allowed_.size() * static_cast<size_t>(trie_->vocab_size()) / 8;
}

}  // namespace coppice::grammar
