#include "worker/row_states.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/draft_request.h"
#include "plan/step_limits.h"

namespace coppice::worker {
namespace {

using decoding::PathId;

// Where the tokens of a sequence have their KV.
class TokenSlots {
 public:
  TokenSlots(const Sequence& sequence, const model::BlockManager& blocks)
      : sequence_(sequence),
        blocks_(blocks),
        table_(blocks.block_table(sequence.kv)),
        prefix_(blocks.prefix_length(sequence.kv)) {
    const decoding::PathTree& paths = sequence.decoder->paths();
    for (PathId path = StablePath(sequence); path != decoding::kNoPath && NumberOf(path) >= prefix_;
         path = paths.parent(path))
      behind_.push_back(path);
    std::reverse(behind_.begin(), behind_.end());
  }
  int prefix() const { return prefix_; }
  // How many stable tokens follow the prefix.
  int behind() const { return static_cast<int>(behind_.size()); }
  // -1: the token has no KV.
  int32_t OfStable(int token) const {
    if (token < prefix_) return InPrefix(token);
    const int place = token - prefix_;
    return place < behind() && NumberOf(behind_[place]) == token ? OfNode(behind_[place]) : -1;
  }
  int32_t OfPath(PathId path) const {
    if (sequence_.KvOf(path) != model::kPrefixEnd) return OfNode(path);
    return NumberOf(path) < prefix_ ? InPrefix(NumberOf(path)) : -1;
  }

 private:
  // The last token of the path; those of the prompt count.
  int NumberOf(PathId path) const {
    return static_cast<int>(sequence_.prompt.size()) - 1 + sequence_.decoder->paths().length(path);
  }
  int32_t InPrefix(int token) const {
    return table_[token / kBlockSize] * kBlockSize + token % kBlockSize;
  }
  // kPrefixEnd: a preempted sequence has not read it again.
  int32_t OfNode(PathId path) const {
    const model::KvNode node = sequence_.KvOf(path);
    if (node == model::kNoKv || node == model::kPrefixEnd) return -1;
    return blocks_.slot(sequence_.kv, node);
  }

  const Sequence& sequence_;
  const model::BlockManager& blocks_;
  const absl::Span<const int32_t> table_;
  const int prefix_;
  std::vector<PathId> behind_;  // the stable tokens after the prefix, in order
};

absl::Status NoState(const std::string& row) {
  return absl::FailedPreconditionError(
      absl::StrCat("states: ", row, " has none, for the token before it has no KV"));
}

}  // namespace

PathId StablePath(const Sequence& sequence) {
  const decoding::BeamDecoder& decoder = *sequence.decoder;
  if (decoder.layers_committed() == 0) return decoding::kRootPath;
  return decoding::SharedPath(decoder.paths(), decoder.roots());
}

uint32_t PoolStates::Readable(const Sequence& sequence) const {
  if (sequence.kv < 0) return 1;
  const TokenSlots slots(sequence, *runner_->blocks());
  int token = slots.prefix();
  const int end = token + slots.behind();
  while (token < end && slots.OfStable(token) >= 0) ++token;
  const int rows = static_cast<int>(sequence.prompt.size()) +
                   sequence.decoder->paths().length(StablePath(sequence));
  return static_cast<uint32_t>(std::min(token + 1, rows));
}

absl::Status PoolStates::Read(const Sequence& sequence, const WantedRows& rows,
                              std::vector<uint16_t>* out) {
  out->clear();
  if (sequence.kv < 0) return absl::FailedPreconditionError("states: the sequence has no KV");
  const TokenSlots slots(sequence, *runner_->blocks());
  const decoding::PathTree& paths = sequence.decoder->paths();
  std::vector<int32_t> wanted;
  for (uint32_t row = rows.first; row < rows.first + rows.count; ++row) {
    wanted.push_back(slots.OfStable(static_cast<int>(row) - 1));
    if (wanted.back() < 0) return NoState(absl::StrCat("row ", row));
  }
  for (const PathId path : rows.paths) {
    wanted.push_back(slots.OfPath(paths.parent(path)));
    if (wanted.back() < 0) return NoState(absl::StrCat("path ", decoding::Index(path)));
  }
  out->resize(wanted.size() * columns());
  return runner_->ReadStates(wanted, out->data());
}

}  // namespace coppice::worker
