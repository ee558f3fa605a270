// A format that allows few tokens after each path, chosen by the hash of the path, as a catalogue
// of items does. A state is a path. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/output_format.h"
#include "sampling/rng.h"

namespace coppice::test {

class SparsePaths : public OutputFormat {
 public:
  // After each path about one in `one_in` tokens of [0, vocab), and at least one. length: a path of
  // so many tokens is complete; 0: none is.
  SparsePaths(int vocab, int one_in, int length = 0)
      : vocab_(vocab), one_in_(one_in), length_(length) {}

  // After the path with this hash.
  bool Allows(uint64_t hash, TokenId token) const {
    const uint64_t bits = sampling::Finalize(hash + 77);
    return sampling::Finalize(bits + token) % one_in_ == 0 ||
           token == static_cast<TokenId>(1 + bits % (vocab_ - 1));
  }

  State Start() const override { return Intern({sampling::kRootHash, 0}); }
  State Next(State state, TokenId token) const override {
    if (state == kBroken || Complete(state) || !Allows(HashOf(state), token)) return kBroken;
    const Path path = At(state);
    return Intern({sampling::ExtendHash(path.hash, token), path.length + 1});
  }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override {
    if (state == kBroken) return nullptr;
    auto allowed = std::make_shared<AllowedTokens>();
    if (Complete(state)) return allowed;
    allowed->bits.resize((vocab_ + 63) / 64);
    for (TokenId token = 0; token < vocab_; ++token) {
      if (!Allows(HashOf(state), token)) continue;
      allowed->listed.push_back(token);
      allowed->bits[token / 64] |= uint64_t{1} << (token % 64);
    }
    allowed->count = static_cast<int>(allowed->listed.size());
    return allowed;
  }
  bool CutShort(State) const override { return false; }
  bool Complete(State state) const override {
    return length_ > 0 && state != kBroken && At(state).length == length_;
  }
  bool has_complete_states() const override { return length_ > 0; }

 private:
  struct Path {
    uint64_t hash;
    int length;
  };
  State Intern(Path path) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [known, is_new] =
        state_of_.try_emplace(path.hash, static_cast<State>(paths_.size()));
    if (is_new) paths_.push_back(path);
    return known->second;
  }
  Path At(State state) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return paths_[state];
  }
  uint64_t HashOf(State state) const { return At(state).hash; }

  const int vocab_, one_in_, length_;
  mutable std::mutex mutex_;
  mutable std::vector<Path> paths_;
  mutable std::unordered_map<uint64_t, State> state_of_;
};

}  // namespace coppice::test
