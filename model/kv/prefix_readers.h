// Prompts that are read at the same time and begin alike: one is read, the others wait and adopt
// its blocks (BlockManager::Adopt). So n samples of a prompt, or requests with the same system
// prompt that arrive together, compute it once. Used for one step; thread-compatible.
#pragma once

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "plan/step_plan.h"

namespace coppice::model {

class PrefixReaders {
 public:
  // Tokens. A shorter common prefix is not worth waiting a step for.
  static constexpr int kLeastShared = 2 * kBlockSize;

  // Ask in the order in which prompts have their turns. `length`: tokens of `prompt` whose KV the
  // sequence has. True: an earlier prompt will compute the blocks that this one needs next. False:
  // this one continues, and later ones may wait for it; the prompt must outlive the step.
  bool MustWait(absl::Span<const TokenId> prompt, int length) {
    const size_t next = static_cast<size_t>(length) + kLeastShared;
    const bool whole_block = length % kBlockSize == 0 && next < prompt.size();
    if (whole_block && std::any_of(readers_.begin(), readers_.end(), [&](const auto& reader) {
          return reader.size() > next &&
                 std::equal(prompt.begin(), prompt.begin() + next, reader.begin());
        })) {
      return true;
    }
    readers_.push_back(prompt);
    return false;
  }

 private:
  std::vector<absl::Span<const TokenId>> readers_;
};

}  // namespace coppice::model
