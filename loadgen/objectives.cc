#include "loadgen/objectives.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace coppice::loadgen {

absl::StatusOr<Objectives> ParseObjectives(const std::string& text) {
  Objectives objectives;
  for (const absl::string_view part :
       absl::StrSplit(text, absl::ByAnyChar(" ,\n"), absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits(':', 1));
    std::optional<double>* bound = pair.first == "ttft"   ? &objectives.ttft_ms
                                   : pair.first == "tpot" ? &objectives.tpot_ms
                                   : pair.first == "e2el" ? &objectives.e2el_ms
                                                          : nullptr;
    double value = 0;
    if (bound == nullptr || *bound || !absl::SimpleAtod(pair.second, &value) || !(value > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected ttft:MS, tpot:MS or e2el:MS, each once and above 0, got '", part, "'"));
    }
    *bound = value;
  }
  return objectives;
}

bool Meets(const RequestRecord& record, const Objectives& objectives) {
  if (!record.ok) return false;
  const std::optional<double> first = TtftS(record), per_token = TpotS(record);
  const double waited = record.sent_s - record.intended_s;
  if (objectives.ttft_ms && !(first && (*first + waited) * 1e3 <= *objectives.ttft_ms))
    return false;
  if (objectives.tpot_ms && per_token && *per_token * 1e3 > *objectives.tpot_ms) return false;
  const double latency = record.end_s - record.intended_s;
  return !objectives.e2el_ms || latency * 1e3 <= *objectives.e2el_ms;
}

}  // namespace coppice::loadgen
