#include "model/markov_bias.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/element.h"
#include "kernels/matrix_source.h"

namespace coppice::model {
namespace {

// Under the name that DeepSpec gives it, or the plain one.
std::string NameOf(const Checkpoint& checkpoint, const std::string& tensor) {
  std::string name = absl::StrCat(tensor, ".weight");
  return checkpoint.Has(name) ? name : absl::StrCat("markov_head.", name);
}

absl::StatusOr<std::vector<uint16_t>> Read(const std::string& name, int64_t rows, int64_t columns,
                                           Checkpoint* checkpoint) {
  COPPICE_ASSIGN_OR_RETURN(const kernels::MatrixSource source,
                           checkpoint->Matrix(name, rows, columns));
  std::vector<uint16_t> values(rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    kernels::ConvertRow(source, row, kernels::DType::kBF16, values.data() + row * columns);
  checkpoint->Release(name);
  for (int64_t i = 0; i < rows * columns; ++i) {
    if (std::isfinite(kernels::Bf16ToFloat(values[i]))) continue;
    return checkpoint->Error(
        name, absl::StrCat("row ", i / columns, ", column ", i % columns, " is ",
                           kernels::Bf16ToFloat(values[i]), ", expected a finite number"));
  }
  return values;
}

}  // namespace

absl::Status MarkovBias::Check(const ModelConfig& config, Checkpoint* checkpoint) {
  const int rank = config.block.markov_rank;
  if (rank == 0) return absl::OkStatus();
  for (const char* const tensor : {"markov_w1", "markov_w2"}) {
    COPPICE_RETURN_IF_ERROR(
        checkpoint->CheckMatrix(NameOf(*checkpoint, tensor), config.vocab_size, rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MarkovBias>> MarkovBias::Load(const ModelConfig& config,
                                                             Checkpoint* checkpoint) {
  const int rank = config.block.markov_rank;
  if (rank == 0) return nullptr;
  std::unique_ptr<MarkovBias> bias(new MarkovBias(rank));
  COPPICE_ASSIGN_OR_RETURN(
      bias->w1_, Read(NameOf(*checkpoint, "markov_w1"), config.vocab_size, rank, checkpoint));
  COPPICE_ASSIGN_OR_RETURN(
      bias->w2_, Read(NameOf(*checkpoint, "markov_w2"), config.vocab_size, rank, checkpoint));
  return bias;
}

void MarkovBias::Add(TokenId before, absl::Span<const TokenId> tokens,
                     absl::Span<float> logits) const {
  COPPICE_CHECK(tokens.size() == logits.size());
  constexpr int kLanes = 8;  // sums that do not wait for each other
  std::vector<float> embedded(rank_);
  for (int i = 0; i < rank_; ++i)
    embedded[i] = kernels::Bf16ToFloat(w1_[int64_t{before} * rank_ + i]);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const uint16_t* const row = w2_.data() + int64_t{tokens[t]} * rank_;
    float lanes[kLanes] = {};
    int i = 0;
    for (; i + kLanes <= rank_; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane)
        lanes[lane] += kernels::Bf16ToFloat(row[i + lane]) * embedded[i + lane];
    }
    for (; i < rank_; ++i) lanes[0] += kernels::Bf16ToFloat(row[i]) * embedded[i];
    for (const float lane : lanes) logits[t] += lane;
  }
}

}  // namespace coppice::model
