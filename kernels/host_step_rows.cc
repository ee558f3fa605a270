#include "kernels/host_step_rows.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cpu/parallel_rows.h"

namespace coppice::kernels {
namespace {

absl::Span<const std::pair<TokenId, double>> BiasOf(const StepPlan& plan, const RowNeed& need) {
  return absl::MakeConstSpan(plan.bias).subspan(need.bias_begin, need.bias_end - need.bias_begin);
}

}  // namespace

HostStepRows::HostStepRows(ThreadTeam* team, comm::Communicator* communicator, bool always_list)
    : team_(team), communicator_(communicator), always_list_(always_list) {}

void HostStepRows::Piece::Add(int need, bool whole, size_t part_words) {
  parts.push_back({need, words, part_words, whole});
  words += part_words;
}

float* HostStepRows::Buffer::AtLeast(size_t count) {
  if (size < count) {
    data.reset(new float[count]);
    size = count;
  }
  return data.get();
}

void HostStepRows::Clear() {
  parts_ = nullptr;
  came_whole_.clear();
  whole_.clear();
  listed_.clear();
  rows_used_ = 0;
}

void HostStepRows::LogitParts::WriteRecord(int need, float* record) const {
  const RowNeed& of = plan->needs[need];
  const absl::Span<const float> row(Row(need), shard.size());
  sampling::WriteRecord(of, {row, shard, vocab, BiasOf(*plan, of)}, record);
}

absl::Status HostStepRows::Select(const StepPlan& plan, const float* logits, int64_t first_token,
                                  int64_t vocab) {
  of_logits_.plan = &plan;
  of_logits_.logits = logits;
  of_logits_.shard = sampling::VocabularyShard(vocab, communicator_->rank(), communicator_->size());
  of_logits_.vocab = vocab;
  return Select(plan, &of_logits_, first_token, vocab);
}

absl::Status HostStepRows::Select(const StepPlan& plan, const RowParts* parts, int64_t first_token,
                                  int64_t vocab) {
  Clear();
  if (vocab != vocab_) rows_.clear();
  parts_ = parts;
  vocab_ = vocab;
  const int needs = static_cast<int>(plan.needs.size());
  shard_ = sampling::VocabularyShard(vocab, communicator_->rank(), communicator_->size());
  COPPICE_CHECK(first_token == shard_.begin);
  if (communicator_->size() == 1 && !always_list_) {
    came_whole_.assign(needs, true);
    for (int i = 0; i < needs; ++i) whole_.push_back(parts->Row(i));
    return absl::OkStatus();
  }
  whole_.assign(needs, nullptr);
  listed_.resize(needs);
  const int64_t padded = sampling::LargestShard(vocab, communicator_->size());
  Piece piece;
  for (int i = 0; i < needs; ++i) {
    const RowNeed& need = plan.needs[i];
    came_whole_.push_back(sampling::IsWhole(need, vocab));
    piece.Add(i, came_whole_[i], came_whole_[i] ? padded : sampling::RecordWords(need));
  }
  return Exchange(&plan, &piece);
}

absl::Status HostStepRows::CheckFetch(absl::Span<const int32_t> needs) const {
  for (const int32_t need : needs) {
    if (need >= 0 && need < static_cast<int64_t>(came_whole_.size())) continue;
    return absl::InvalidArgumentError(absl::StrCat("fetch of need ", need, ": the step before had ",
                                                   came_whole_.size(), " needs"));
  }
  return absl::OkStatus();
}

absl::Status HostStepRows::Fetch(absl::Span<const int32_t> needs) {
  const int64_t padded = sampling::LargestShard(vocab_, communicator_->size());
  Piece piece;
  for (const int32_t need : needs) {
    if (came_whole_[need]) continue;
    came_whole_[need] = true;
    piece.Add(need, /*whole=*/true, padded);
  }
  return piece.parts.empty() ? absl::OkStatus() : Exchange(nullptr, &piece);
}

absl::Span<const float> HostStepRows::Whole(int need) const {
  const float* row = whole_.at(need);
  return {row, row == nullptr ? 0 : static_cast<size_t>(vocab_)};
}

const CandidateRow* HostStepRows::Listed(int need) const {
  return whole_.at(need) == nullptr ? &listed_[need] : nullptr;
}

absl::Status HostStepRows::Exchange(const StepPlan* plan, Piece* piece) {
  const absl::Status status = GatherAndJoin(plan, piece);
  if (!status.ok()) Clear();
  return status;
}

absl::Status HostStepRows::GatherAndJoin(const StepPlan* plan, Piece* piece) {
  const auto parts = static_cast<int64_t>(piece->parts.size());
  const int ranks = communicator_->size();
  float* mine = mine_.AtLeast(piece->words);
  cpu::ForRows(parts, parts_->work(), team_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) WritePart(piece->parts[i], mine);
  });
  const bool leader = communicator_->rank() == 0;
  const size_t gathered = leader ? piece->words * ranks : 0;
  COPPICE_RETURN_IF_ERROR(
      communicator_->Gather({mine, piece->words}, {all_.AtLeast(gathered), gathered}));
  if (!leader) return absl::OkStatus();
  for (Part& part : piece->parts) {
    if (part.whole) part.row = NewRow();
  }
  const int64_t work = 2 * static_cast<int64_t>(gathered) / std::max<int64_t>(1, parts);
  cpu::ForRows(parts, work, team_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) JoinPart(plan, piece->parts[i], piece->words);
  });
  return absl::OkStatus();
}

void HostStepRows::WritePart(const Part& part, float* piece) const {
  float* out = piece + part.offset;
  if (!part.whole) return parts_->WriteRecord(part.need, out);
  std::copy_n(parts_->Row(part.need), shard_.size(), out);
  std::fill(out + shard_.size(), out + part.words, 0.0f);
}

void HostStepRows::JoinPart(const StepPlan* plan, const Part& part, size_t piece_words) {
  const int ranks = communicator_->size();
  std::array<const float*, kLseChunks> of_rank;
  for (int r = 0; r < ranks; ++r) of_rank[r] = all_.data.get() + r * piece_words + part.offset;
  if (!part.whole) {
    const RowNeed& need = plan->needs[part.need];
    listed_[part.need] =
        sampling::JoinRecords(need, {of_rank.data(), size_t(ranks)}, BiasOf(*plan, need));
    return;
  }
  for (int r = 0; r < ranks; ++r) {
    const sampling::TokenRange tokens = sampling::VocabularyShard(vocab_, r, ranks);
    std::copy_n(of_rank[r], tokens.size(), part.row + tokens.begin);
  }
  whole_[part.need] = part.row;
}

float* HostStepRows::NewRow() {
  if (rows_used_ == rows_.size()) rows_.emplace_back(new float[static_cast<size_t>(vocab_)]);
  return rows_[rows_used_++].get();
}

}  // namespace coppice::kernels
