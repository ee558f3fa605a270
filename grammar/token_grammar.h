// The tokens that may follow each text of a format: an automaton over bytes, walked along the trie
// of the vocabulary. The result for a state is kept. One object is made per format and serves all
// sequences that use it (format_store.h).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/output_format.h"
#include "grammar/automaton.h"
#include "grammar/token_trie.h"

namespace coppice::grammar {

class TokenGrammar : public OutputFormat {
 public:
  // ends: ids that end a hypothesis.
  TokenGrammar(std::shared_ptr<const TokenTrie> trie, Automaton automaton,
               std::vector<TokenId> ends);

  State Start() const override { return automaton_.start(); }
  State Next(State state, TokenId token) const override;
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override;
  bool CutShort(State state) const override;
  // Half of the allowed states are used up. New sequences should share another object, so that the
  // sequences that have this one can finish with it.
  bool worn() const;
  size_t bytes() const;  // approximate memory

 private:
  AllowedTokens Walk(State state) const;

  const std::shared_ptr<const TokenTrie> trie_;
  const std::vector<TokenId> ends_;  // ascending
  mutable std::mutex lock_;
  mutable Automaton automaton_;
  mutable absl::flat_hash_map<State, std::shared_ptr<const AllowedTokens>> allowed_;
  mutable absl::flat_hash_set<State> cut_short_;
};

}  // namespace coppice::grammar
