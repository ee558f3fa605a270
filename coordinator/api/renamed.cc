#include "coordinator/api/renamed.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace coppice::coordinator {
namespace {

using Renamed = std::pair<absl::string_view, absl::string_view>;  // the old name, the new one

constexpr Renamed kMethods[] = {
    {"pf_gumbel", "gumbel_coupling"}, {"gumbel_slots", "joint_gumbel_coupling"},
    {"hg_wor", "gumbel_top_k"},       {"certified", "speculative_beam_search"},
    {"wor_reuse", "dsbd_wor"},        {"pf_rrs", "beam_recursive_rejection"},
    {"single_kv", "dsbd_single_kv"},  {"block", "block_verification"},
};

constexpr Renamed kFields[] = {
    {"warp_mode", "sampling_scope"},
    {"speculative.draft_support", "speculative.draft_top_k"},
};

absl::string_view NewName(absl::Span<const Renamed> names, absl::string_view old_name) {
  for (const auto& [was, is] : names) {
    if (was == old_name) return is;
  }
  return "";
}

}  // namespace

absl::string_view RenamedMethod(absl::string_view name) { return NewName(kMethods, name); }

void RefuseRenamed(JsonFields* fields) {
  for (const std::string& name : fields->Unknown()) {
    const absl::string_view new_name = NewName(kFields, fields->Path(name));
    if (!new_name.empty())
      fields->Fail("unknown_field", name, absl::StrCat("is now called ", new_name));
  }
}

}  // namespace coppice::coordinator
