#include "model_files/gguf_experts.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::model_files {

absl::StatusOr<GgufExperts> ReadGgufExperts(const GgufFile& file, const std::string& name) {
  const auto key = [&](const char* field) { return absl::StrCat(name, ".", field); };
  GgufExperts experts;
  COPPICE_ASSIGN_OR_RETURN(experts.count, file.Int(key("expert_count"), 1, kMostExperts));
  COPPICE_ASSIGN_OR_RETURN(experts.chosen, file.Int(key("expert_used_count"), 1, experts.count));
  // What a file may only say as these architectures have it: no experts that every row uses, no
  // layers without experts, softmax over all scores.
  struct Only {
    const char* field;
    int64_t least, most;
  };
  for (const Only& only :
       {Only{"expert_shared_count", 0, 0}, Only{"leading_dense_block_count", 0, 0},
        Only{"expert_group_count", 0, 1}, Only{"expert_gating_func", 1, 1}}) {
    COPPICE_RETURN_IF_ERROR(
        file.IntOr(key(only.field), only.least, only.most, only.least).status());
  }
  COPPICE_RETURN_IF_ERROR(file.NumberOr(key("expert_weights_scale"), 1, 1, 1).status());
  COPPICE_ASSIGN_OR_RETURN(const bool divided, file.BoolOr(key("expert_weights_norm"), true));
  if (!divided) {
    return file.KeyError(key("expert_weights_norm"),
                         "false, expected true: the shares of the chosen experts sum to 1");
  }
  for (const auto& [tensor, facts] : file.tensors()) {
    if (!absl::StartsWith(tensor, "blk.")) continue;
    if (absl::EndsWith(tensor, ".bias") || absl::StrContains(tensor, "_shexp.")) {
      return file.Error(
          absl::StrCat("tensor ", ShownName(tensor), ": not served in a mixture of experts"));
    }
  }
  return experts;
}

}  // namespace coppice::model_files
