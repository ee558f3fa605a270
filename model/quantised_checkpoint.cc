#include "model/quantised_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "kernels/element.h"
#include "model/code_matrix.h"
#include "model/scaled_matrix.h"

namespace coppice::model {
namespace {

using kernels::DType;
using kernels::MatrixSource;

constexpr char kWeight[] = ".weight";
constexpr char kInt8Type[] = "I8", kFp8Type[] = "F8_E4M3", kWordType[] = "I32";

class QuantisedCheckpoint : public Checkpoint {
 public:
  QuantisedCheckpoint(std::unique_ptr<StoredTensors> stored, const Quantisation& quantisation)
      : stored_(std::move(stored)), q_(quantisation) {}

  bool Has(const std::string& name) const override {
    return IsQuantised(name) || stored_->Has(name);
  }
  absl::StatusOr<MatrixSource> Matrix(const std::string& name, int64_t rows,
                                      int64_t columns) override;
  absl::Status CheckMatrix(const std::string& name, int64_t rows, int64_t columns) override;
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end) override {
    return stored_->Vector(name, size, begin, end);
  }
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t size) override {
    return stored_->Integers(name, size);
  }
  absl::Status Error(const std::string& name, absl::string_view what) const override {
    return stored_->Error(name, what);
  }
  absl::StatusOr<DType> TensorDType(const std::string& name) const override {
    if (IsQuantised(name)) return DType::kBF16;
    return stored_->TensorDType(name);
  }
  BlockMatrices Blocks(const kernels::Backend& backend) const override;
  void Release(const std::string& name) override;
  std::vector<std::string> UnusedNames() const override { return stored_->UnusedNames(); }
  absl::StatusOr<uint64_t> ComputeFingerprint() const override {
    return stored_->ComputeFingerprint();
  }

 private:
  // A matrix that has been made.
  struct Made {
    std::vector<char> bytes;
    DType dtype = DType::kF32;
  };
  bool HasCodes() const {
    return q_.layout == QuantLayout::kGptq || q_.layout == QuantLayout::kAwq || IsPacked();
  }
  bool IsPacked() const { return q_.layout == QuantLayout::kPacked; }
  // The tensor with the codes of NAME.weight.
  std::string CodesName(const std::string& name) const;
  bool IsQuantised(const std::string& name) const;
  // Tensor `name`, which must be of this type and shape.
  absl::StatusOr<absl::Span<const char>> Find(const std::string& name, absl::string_view dtype,
                                              const std::vector<int64_t>& shape) const;
  // The elements of tensor `name`, finite numbers, as f32.
  absl::StatusOr<std::vector<float>> Scales(const std::string& name) const;
  // The same as f16, of this shape.
  absl::StatusOr<std::vector<uint16_t>> HalfScales(const std::string& name,
                                                   const std::vector<int64_t>& shape) const;

  // The views of a matrix of codes, whose scales are *scales.
  absl::StatusOr<CodeMatrix> Codes(const std::string& base, int64_t rows, int64_t columns,
                                   std::vector<uint16_t>* scales) const;
  absl::Status ReadZeros(const std::string& name, CodeMatrix* matrix) const;
  absl::Status CheckZeros(const std::string& name, const CodeMatrix& matrix) const;
  absl::Status CheckIndices(const std::string& name, int64_t columns, int64_t group,
                            bool needed) const;
  absl::Status CheckShapeTensor(const std::string& base, int64_t rows, int64_t columns) const;

  // The view of NAME.weight with its scales, which are *scales.
  absl::StatusOr<ScaledMatrix> Scaled(const std::string& name, std::vector<float>* scales) const;
  absl::Status CheckScaled(const std::string& name, int64_t rows, int64_t columns) const;
  absl::StatusOr<Made> Make(const std::string& name, int64_t rows, int64_t columns) const;
  absl::Status CheckNumbers(const std::string& name, const ScaledMatrix& matrix) const;

  std::unique_ptr<StoredTensors> stored_;
  Quantisation q_;
  std::map<std::string, Made> made_;  // by NAME.weight
};

std::string Base(const std::string& name) { return std::string(absl::StripSuffix(name, kWeight)); }

std::string QuantisedCheckpoint::CodesName(const std::string& name) const {
  if (!HasCodes()) return name;
  return Base(name) + (IsPacked() ? ".weight_packed" : ".qweight");
}

bool QuantisedCheckpoint::IsQuantised(const std::string& name) const {
  if (!absl::EndsWith(name, kWeight)) return false;
  const TensorInfo* codes = stored_->FindTensor(CodesName(name));
  if (codes == nullptr || HasCodes()) return codes != nullptr;
  return codes->dtype == (q_.layout == QuantLayout::kInt8 ? kInt8Type : kFp8Type);
}

absl::StatusOr<absl::Span<const char>> QuantisedCheckpoint::Find(
    const std::string& name, absl::string_view dtype, const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = stored_->FindTensor(name);
  if (tensor == nullptr)
    return Error(name, absl::StrCat("missing, expected a tensor of shape ", ShapeText(shape)));
  if (tensor->shape != shape || tensor->dtype != dtype) {
    return Error(name, absl::StrCat(tensor->dtype, " ", ShapeText(tensor->shape), ", expected ",
                                    dtype, " ", ShapeText(shape), " by config.json"));
  }
  return stored_->Bytes(name);
}

absl::StatusOr<std::vector<float>> QuantisedCheckpoint::Scales(const std::string& name) const {
  const TensorInfo* tensor = stored_->FindTensor(name);
  if (tensor == nullptr) return Error(name, "missing, expected the scales of a matrix");
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (tensor->dtype != kernels::DTypeName(dtype)) continue;
    const absl::Span<const char> bytes = stored_->Bytes(name);
    std::vector<float> scales(bytes.size() / kernels::DTypeSize(dtype));
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] = kernels::ElementToFloat(bytes.data(), dtype, static_cast<int64_t>(i));
      if (std::isfinite(scales[i])) continue;
      return Error(name,
                   absl::StrCat("scale ", i, " is ", scales[i], ", expected a finite number"));
    }
    return scales;
  }
  return Error(name, absl::StrCat("dtype ", tensor->dtype, ", expected F32, F16 or BF16"));
}

absl::StatusOr<std::vector<uint16_t>> QuantisedCheckpoint::HalfScales(
    const std::string& name, const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = stored_->FindTensor(name);
  COPPICE_RETURN_IF_ERROR(Find(name, tensor == nullptr ? "F16" : tensor->dtype, shape).status());
  COPPICE_ASSIGN_OR_RETURN(const std::vector<float> scales, Scales(name));
  std::vector<uint16_t> halves(scales.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    if (HasHalf(scales[i], &halves[i])) continue;
    return Error(name, absl::StrCat("scale ", i, " is ", scales[i],
                                    ", expected one that F16 holds exactly"));
  }
  return halves;
}

absl::StatusOr<MatrixSource> QuantisedCheckpoint::Matrix(const std::string& name, int64_t rows,
                                                         int64_t columns) {
  if (!IsQuantised(name)) return stored_->Matrix(name, rows, columns);
  auto found = made_.find(name);
  if (found == made_.end()) {
    COPPICE_ASSIGN_OR_RETURN(Made made, Make(name, rows, columns));
    found = made_.emplace(name, std::move(made)).first;
  }
  const Made& made = found->second;
  return MatrixSource{made.bytes.data(), made.dtype, rows, columns, /*row_stride=*/columns};
}

absl::Status QuantisedCheckpoint::CheckMatrix(const std::string& name, int64_t rows,
                                              int64_t columns) {
  if (!IsQuantised(name)) return stored_->CheckMatrix(name, rows, columns);
  std::vector<uint16_t> scales;
  if (HasCodes()) return Codes(Base(name), rows, columns, &scales).status();
  return CheckScaled(name, rows, columns);
}

absl::StatusOr<CodeMatrix> QuantisedCheckpoint::Codes(const std::string& base, int64_t rows,
                                                      int64_t columns,
                                                      std::vector<uint16_t>* scales) const {
  const std::string codes = CodesName(base + kWeight);
  CodeMatrix m{q_.layout, q_.bits, rows, columns, q_.group > 0 ? q_.group : columns};
  const int64_t n = m.codes_of_word();
  if (columns % kValuesOfBlock != 0 || (!IsPacked() && rows % n != 0)) {
    return Error(codes,
                 absl::StrCat("a matrix of ", rows, " rows and ", columns,
                              " columns, expected multiples of ", n, " and ", kValuesOfBlock));
  }
  const std::vector<int64_t> shape =
      q_.layout == QuantLayout::kPacked ? std::vector{rows, columns / n}
      : q_.layout == QuantLayout::kGptq ? std::vector{columns / n, rows}
                                        : std::vector{columns, rows / n};
  COPPICE_ASSIGN_OR_RETURN(const auto code_bytes, Find(codes, kWordType, shape));
  m.codes = code_bytes.data();
  COPPICE_ASSIGN_OR_RETURN(*scales, HalfScales(base + (IsPacked() ? ".weight_scale" : ".scales"),
                                               IsPacked() ? std::vector{rows, m.groups()}
                                                          : std::vector{m.groups(), rows}));
  m.scales = *scales;
  COPPICE_RETURN_IF_ERROR(CheckIndices(base + (IsPacked() ? ".weight_g_idx" : ".g_idx"), columns,
                                       m.group, q_.needs_indices));
  if (IsPacked()) COPPICE_RETURN_IF_ERROR(CheckShapeTensor(base, rows, columns));
  if (!IsPacked() || q_.has_zeros) {
    COPPICE_RETURN_IF_ERROR(ReadZeros(base + (IsPacked() ? ".weight_zero_point" : ".qzeros"), &m));
  }
  return m;
}

absl::Status QuantisedCheckpoint::ReadZeros(const std::string& name, CodeMatrix* m) const {
  const int64_t n = m->codes_of_word();
  COPPICE_ASSIGN_OR_RETURN(const auto bytes,
                           Find(name, kWordType,
                                IsPacked() ? std::vector{(m->rows + n - 1) / n, m->groups()}
                                           : std::vector{m->groups(), m->rows / n}));
  m->zeros = bytes.data();
  m->added_to_zeros = q_.added_to_zeros;
  return q_.has_zeros ? absl::OkStatus() : CheckZeros(name, *m);
}

absl::Status QuantisedCheckpoint::CheckZeros(const std::string& name, const CodeMatrix& m) const {
  const int middle = 1 << (m.bits - 1);
  for (int64_t group = 0; group < m.groups(); ++group) {
    for (int64_t row = 0; row < m.rows; ++row) {
      const int zero = ZeroOf(m, group, row);
      if (zero == middle) continue;
      return Error(name,
                   absl::StrCat("the zero of group ", group, ", output ", row, " is ", zero,
                                ", expected ", middle, ", as quantization_config.sym is true"));
    }
  }
  return absl::OkStatus();
}

// Inputs may be quantised in another order (desc_act). That is served only if the order is theirs.
absl::Status QuantisedCheckpoint::CheckIndices(const std::string& name, int64_t columns,
                                               int64_t group, bool needed) const {
  if (!needed && stored_->FindTensor(name) == nullptr) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const auto bytes, Find(name, kWordType, {columns}));
  for (int64_t i = 0; i < columns; ++i) {
    int32_t index;
    std::memcpy(&index, bytes.data() + i * static_cast<int64_t>(sizeof index), sizeof index);
    if (index == i / group) continue;
    return Error(name, absl::StrCat("element ", i, " is ", index, ", expected ", i / group,
                                    ": groups in the order of activations (desc_act) are not "
                                    "served yet"));
  }
  return absl::OkStatus();
}

absl::Status QuantisedCheckpoint::CheckShapeTensor(const std::string& base, int64_t rows,
                                                   int64_t columns) const {
  const std::string name = base + ".weight_shape";
  const TensorInfo* tensor = stored_->FindTensor(name);
  if (tensor == nullptr || tensor->dtype != "I64") return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, stored_->Integers(name, 2));
  if (shape == std::vector{rows, columns}) return absl::OkStatus();
  return Error(name, absl::StrCat(ShapeText(shape), ", expected ", ShapeText({rows, columns}),
                                  " by config.json"));
}

absl::StatusOr<ScaledMatrix> QuantisedCheckpoint::Scaled(const std::string& name,
                                                         std::vector<float>* scales) const {
  const TensorInfo& codes = *stored_->FindTensor(name);
  if (codes.shape.size() != 2 || codes.shape[0] == 0 || codes.shape[1] == 0)
    return Error(name, absl::StrCat("shape ", ShapeText(codes.shape), ", expected a matrix"));
  ScaledMatrix m;
  m.rows = codes.shape[0];
  m.columns = codes.shape[1];
  std::string scales_name = name + "_scale_inv";
  if (stored_->FindTensor(scales_name) == nullptr) scales_name = name + "_scale";
  COPPICE_ASSIGN_OR_RETURN(*scales, Scales(scales_name));
  const std::vector<int64_t> shape = stored_->FindTensor(scales_name)->shape;
  m.block_rows = q_.block_rows > 0 ? q_.block_rows : 1;
  m.block_columns = q_.block_columns > 0 ? q_.block_columns : m.columns;
  const int64_t down = (m.rows + m.block_rows - 1) / m.block_rows;
  const int64_t across = (m.columns + m.block_columns - 1) / m.block_columns;
  const bool of_rows = q_.block_rows == 0 && shape == std::vector{m.rows};
  if (q_.block_rows == 0 && scales->size() == 1) {
    m.block_rows = m.rows;  // one for the matrix
  } else if (shape != std::vector{down, across} && !of_rows) {
    return Error(scales_name, absl::StrCat("shape ", ShapeText(shape), ", expected ",
                                           ShapeText({down, across}), " by config.json"));
  }
  m.codes = stored_->Bytes(name).data();
  m.scales = *scales;
  return m;
}

absl::Status QuantisedCheckpoint::CheckScaled(const std::string& name, int64_t rows,
                                              int64_t columns) const {
  const bool integers = q_.layout == QuantLayout::kInt8;
  COPPICE_RETURN_IF_ERROR(Find(name, integers ? kInt8Type : kFp8Type, {rows, columns}).status());
  std::vector<float> scales;
  return Scaled(name, &scales).status();
}

absl::StatusOr<QuantisedCheckpoint::Made> QuantisedCheckpoint::Make(const std::string& name,
                                                                    int64_t rows,
                                                                    int64_t columns) const {
  if (HasCodes()) {
    std::vector<uint16_t> scales;
    COPPICE_ASSIGN_OR_RETURN(const CodeMatrix m, Codes(Base(name), rows, columns, &scales));
    return Made{MakeBlocks(m, BlockTypeOf(q_)), BlockTypeOf(q_)};
  }
  COPPICE_RETURN_IF_ERROR(CheckScaled(name, rows, columns));
  std::vector<float> scales;
  COPPICE_ASSIGN_OR_RETURN(const ScaledMatrix m, Scaled(name, &scales));
  if (q_.layout == QuantLayout::kInt8) {
    if (FitsQ8(m)) return Made{MakeQ8(m), DType::kQ8_0};
    return Made{MakeF32FromInt8(m), DType::kF32};
  }
  COPPICE_RETURN_IF_ERROR(CheckNumbers(name, m));
  return Made{MakeF32FromFp8(m), DType::kF32};
}

absl::Status QuantisedCheckpoint::CheckNumbers(const std::string& name,
                                               const ScaledMatrix& m) const {
  const auto* const begin = m.codes;
  const auto* const end = begin + m.rows * m.columns;
  const auto* const bad = std::find_if(
      begin, end, [](char code) { return (static_cast<uint8_t>(code) & 0x7f) == 0x7f; });
  if (bad == end) return absl::OkStatus();
  return Error(name, absl::StrCat("element ", bad - begin, " is nan, expected a finite number"));
}

BlockMatrices QuantisedCheckpoint::Blocks(const kernels::Backend& backend) const {
  const DType dtype = HasCodes() ? BlockTypeOf(q_) : DType::kQ8_0;
  BlockMatrices blocks;
  if (!backend.stores(dtype) || q_.layout == QuantLayout::kFp8) return blocks;
  for (const TensorInfo* tensor : stored_->Tensors()) {
    if (tensor->shape.size() != 2) continue;
    int64_t elements = tensor->shape[0] * tensor->shape[1];
    if (HasCodes()) {
      if (tensor->dtype != kWordType || !absl::EndsWith(tensor->name, CodesName(kWeight))) continue;
      elements *= 32 / q_.bits;
    } else {
      if (!IsQuantised(tensor->name)) continue;
      std::vector<float> scales;
      const auto m = Scaled(tensor->name, &scales);
      if (!m.ok() || !FitsQ8(*m)) continue;
    }
    blocks.elements += elements;
  }
  blocks.bytes = kernels::RowBytes(dtype, blocks.elements);
  if (blocks.elements > 0) blocks.formats = {kernels::FormatOf(dtype).name};
  return blocks;
}

void QuantisedCheckpoint::Release(const std::string& name) {
  made_.erase(name);
  const std::string base = Base(name);
  for (const char* const suffix : {kWeight, ".qweight", ".qzeros", ".scales", ".weight_packed",
                                   ".weight_zero_point", ".weight_scale", ".weight_scale_inv"})
    stored_->Release(base + suffix);
}

}  // namespace

std::unique_ptr<Checkpoint> MakeQuantisedCheckpoint(std::unique_ptr<StoredTensors> stored,
                                                    const Quantisation& quantisation) {
  return std::make_unique<QuantisedCheckpoint>(std::move(stored), quantisation);
}

}  // namespace coppice::model
