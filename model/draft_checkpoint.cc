#include "model/draft_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "model/fingerprint.h"
#include "model/safetensors_checkpoint.h"

namespace coppice::model {
namespace {

constexpr char kFirstLayer[] = "layers.0.", kMidlayer[] = "midlayer.", kModel[] = "model.";
constexpr char kWeightSuffix[] = ".weight";

// The target and the names of its embedding and head.
struct TargetTensors {
  std::unique_ptr<Checkpoint> tensors;
  std::string embedding, head;
};

class DraftCheckpoint final : public Checkpoint {
 public:
  DraftCheckpoint(std::unique_ptr<Checkpoint> own, TargetTensors target, const TensorNames& names)
      : own_(std::move(own)),
        target_(std::move(target)),
        embedding_(absl::StrCat(names.embedding, kWeightSuffix)),
        head_(absl::StrCat(names.head, kWeightSuffix)) {}

  bool Has(const std::string& name) const override { return Find(name).tensors->Has(name); }
  absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                               int64_t columns) override {
    COPPICE_RETURN_IF_ERROR(CheckLeftOut(name));
    const Place place = Find(name);
    return InTarget(name, place.tensors->Matrix(place.name, rows, columns));
  }
  absl::Status CheckMatrix(const std::string& name, int64_t rows, int64_t columns) override {
    COPPICE_RETURN_IF_ERROR(CheckLeftOut(name));
    const Place place = Find(name);
    return InTarget(name, place.tensors->CheckMatrix(place.name, rows, columns));
  }
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end) override {
    return own_->Vector(OwnName(name), size, begin, end);
  }
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t size) override {
    return own_->Integers(OwnName(name), size);
  }
  absl::Status Error(const std::string& name, absl::string_view what) const override {
    const Place place = Find(name);
    return place.tensors->Error(place.name, what);
  }
  absl::StatusOr<kernels::DType> TensorDType(const std::string& name) const override {
    const Place place = Find(name);
    return place.tensors->TensorDType(place.name);
  }
  // Not those of the target: at most its embedding and head, which may take less than is expected.
  BlockMatrices Blocks(const kernels::Backend& backend) const override {
    return own_->Blocks(backend);
  }
  void Release(const std::string& name) override {
    const Place place = Find(name);
    place.tensors->Release(place.name);
  }
  // Without t2d, which says of each id of the vocabulary whether d2t has it.
  std::vector<std::string> UnusedNames() const override {
    std::vector<std::string> names = own_->UnusedNames();
    names.erase(std::remove(names.begin(), names.end(), OwnName("t2d")), names.end());
    return names;
  }
  absl::StatusOr<uint64_t> ComputeFingerprint() const override {
    COPPICE_ASSIGN_OR_RETURN(const uint64_t own, own_->ComputeFingerprint());
    if (!IsTargets(embedding_) && !IsTargets(head_)) return own;
    COPPICE_ASSIGN_OR_RETURN(const uint64_t target, target_.tensors->ComputeFingerprint());
    Fingerprint both;
    both.Add(absl::StrCat(own, " ", target));
    return both.value();
  }

 private:
  struct Place {
    Checkpoint* tensors;
    std::string name;
  };

  // The name in the folder; that of the authors if there is no such tensor.
  std::string OwnName(const std::string& name) const {
    std::string theirs = name;
    if (absl::StartsWith(name, kFirstLayer))
      theirs = absl::StrCat(kMidlayer, absl::StripPrefix(name, kFirstLayer));
    for (const std::string& plain : {theirs, name}) {
      for (const std::string& found : {plain, absl::StrCat(kModel, plain)}) {
        if (own_->Has(found)) return found;
      }
    }
    return theirs;
  }

  bool IsTargets(const std::string& name) const {
    return target_.tensors != nullptr && (name == embedding_ || name == head_) &&
           !own_->Has(OwnName(name));
  }
  Place Find(const std::string& name) const {
    if (!IsTargets(name)) return {own_.get(), OwnName(name)};
    return {target_.tensors.get(), name == embedding_ ? target_.embedding : target_.head};
  }

  absl::Status CheckLeftOut(const std::string& name) const {
    if (name != embedding_ || target_.tensors != nullptr || own_->Has(OwnName(name)))
      return absl::OkStatus();
    return Error(name, "missing; a draft without it takes that of its target, which is not given");
  }
  // Says why a tensor of the target was asked for.
  absl::Status InTarget(const std::string& name, const absl::Status& status) const {
    if (status.ok() || !IsTargets(name)) return status;
    return Error(
        name, absl::StrCat("the draft has no ", name, " and cannot take this: ", status.message()));
  }
  template <typename T>
  absl::StatusOr<T> InTarget(const std::string& name, absl::StatusOr<T> result) const {
    if (!result.ok()) return InTarget(name, result.status());
    return result;
  }

  const std::unique_ptr<Checkpoint> own_;
  const TargetTensors target_;
  const std::string embedding_, head_;
};

absl::StatusOr<TargetTensors> OpenTarget(const std::string& dir) {
  TargetTensors target;
  if (dir.empty()) return target;
  COPPICE_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(dir));
  COPPICE_ASSIGN_OR_RETURN(target.tensors, Checkpoint::Open(dir));
  target.embedding = absl::StrCat(config.names.embedding, kWeightSuffix);
  target.head =
      config.tied_head ? target.embedding : absl::StrCat(config.names.head, kWeightSuffix);
  return target;
}

}  // namespace

bool HasTensor(const std::string& dir, const std::string& name) {
  const auto stored = OpenSafetensorsCheckpoint(dir);
  if (!stored.ok()) return false;
  const std::vector<const TensorInfo*> tensors = (*stored)->Tensors();
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorInfo* tensor) {
    return tensor->name == name || absl::EndsWith(tensor->name, absl::StrCat(".", name));
  });
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& dir,
                                                           const ModelConfig& config,
                                                           const std::string& target) {
  COPPICE_ASSIGN_OR_RETURN(auto own, Checkpoint::Open(dir));
  if (!config.takes_states()) return own;
  COPPICE_ASSIGN_OR_RETURN(TargetTensors of_target, OpenTarget(target));
  return std::make_unique<DraftCheckpoint>(std::move(own), std::move(of_target), config.names);
}

}  // namespace coppice::model
