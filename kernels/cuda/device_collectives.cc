#include "kernels/cuda/device_collectives.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/rank_agreement.h"
#include "kernels/cuda/staged_communicator.h"

namespace coppice::kernels::cuda {
namespace {

constexpr const char* kAsked[] = {"auto", "nccl", "host"};

std::string VersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Why these ranks cannot use NCCL; "" = they can.
std::string ProblemWithNccl(absl::Span<const RankFacts> ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].nccl == 0) return absl::StrCat("rank ", r, " has no NCCL");
    if (ranks[r].nccl != ranks[0].nccl) {
      return absl::StrCat("rank 0 has NCCL ", VersionName(ranks[0].nccl), ", rank ", r, " has ",
                          VersionName(ranks[r].nccl));
    }
    for (size_t other = 0; other < r; ++other) {
      if (ranks[other].device != ranks[r].device) continue;
      return absl::StrCat("ranks ", other, " and ", r, " share a device");
    }
  }
  return "";
}

// Facts as floats, which hold such numbers exactly.
constexpr size_t kFactWords = 3 + sizeof(RankFacts::device);

void Write(const RankFacts& facts, absl::Span<float> words) {
  const auto* asked = std::find(std::begin(kAsked), std::end(kAsked), facts.asked);
  words[0] = static_cast<float>(asked - std::begin(kAsked));
  words[1] = static_cast<float>(facts.nccl / 1000);
  words[2] = static_cast<float>(facts.nccl % 1000);
  std::copy(facts.device.begin(), facts.device.end(), words.begin() + 3);
}

RankFacts Read(absl::Span<const float> words) {
  RankFacts facts;
  facts.asked = kAsked[static_cast<size_t>(words[0])];
  facts.nccl = static_cast<int>(words[1]) * 1000 + static_cast<int>(words[2]);
  for (size_t i = 0; i < facts.device.size(); ++i) {
    facts.device[i] = static_cast<uint8_t>(words[3 + i]);
  }
  return facts;
}

absl::StatusOr<std::vector<RankFacts>> ShareFacts(const RankFacts& mine,
                                                  comm::Communicator* communicator) {
  std::vector<float> words(communicator->size() * kFactWords);
  const auto of = [&](int rank) {
    return absl::MakeSpan(words).subspan(rank * kFactWords, kFactWords);
  };
  Write(mine, of(communicator->rank()));
  COPPICE_RETURN_IF_ERROR(communicator->AllReduceSum(absl::MakeSpan(words)));
  std::vector<RankFacts> facts;
  for (int rank = 0; rank < communicator->size(); ++rank) facts.push_back(Read(of(rank)));
  return facts;
}

}  // namespace

absl::StatusOr<CollectivesChoice> ChooseCollectives(absl::Span<const RankFacts> ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].asked == ranks[0].asked) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--communicator: rank 0 was given ", ranks[0].asked, ", rank ", r, " ", ranks[r].asked));
  }
  if (ranks[0].asked == "host") return CollectivesChoice();
  const std::string problem = ProblemWithNccl(ranks);
  if (problem.empty()) return CollectivesChoice{/*nccl=*/true, ""};
  if (ranks[0].asked == "auto") return CollectivesChoice{/*nccl=*/false, problem};
  return absl::FailedPreconditionError(
      absl::StrCat("--communicator=nccl: ", problem, "; --communicator=host works without it"));
}

absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeDeviceCollectives(
    const BackendOptions& options, const DeviceFacts& device, DeviceStream* stream) {
  comm::Communicator* const communicator = options.communicator;
  const CollectiveOptions& wanted = options.collectives;
  const bool known =
      std::find(std::begin(kAsked), std::end(kAsked), wanted.kind) != std::end(kAsked);
  COPPICE_RETURN_IF_ERROR(
      Agree(communicator,
            known ? absl::OkStatus()
                  : absl::InvalidArgumentError(absl::StrCat(
                        "--communicator must be auto, nccl or host, got \"", wanted.kind, "\""))));
  const std::string kind = wanted.kind == "auto" && options.exact ? "host" : wanted.kind;
  if (options.exact && kind == "nccl") {
    return absl::InvalidArgumentError(
        "--communicator=nccl: NCCL does not promise rank order, and --exact needs it");
  }
  // Whoever asks for the host does not need the library, not even to be looked for.
  const absl::StatusOr<int> version =
      kind == "host" ? absl::StatusOr<int>(0) : NcclVersion();
  COPPICE_ASSIGN_OR_RETURN(
      const std::vector<RankFacts> ranks,
      ShareFacts({kind, version.value_or(0), device.uuid}, communicator));
  absl::StatusOr<CollectivesChoice> choice = ChooseCollectives(ranks);
  if (!choice.ok() || !choice->reason.empty()) {
    const std::string here =
        version.ok() ? "" : absl::StrCat(" (here: ", version.status().message(), ")");
    if (!choice.ok()) {
      return absl::Status(choice.status().code(), absl::StrCat(choice.status().message(), here));
    }
    choice->reason += here;
  }
  if (!choice->nccl) {
    return MakeStagedCommunicator(communicator, choice->reason);
  }
  return JoinNccl(communicator, stream, wanted.start_deadline_s);
}

}  // namespace coppice::kernels::cuda
