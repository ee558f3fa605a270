#include "kernels/cuda/collectives/device_collectives.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/collectives/nccl_communicator.h"
#include "kernels/cuda/collectives/one_shot_communicator.h"
#include "kernels/cuda/collectives/sized_collectives.h"
#include "kernels/cuda/collectives/staged_communicator.h"
#include "kernels/cuda/ops/one_shot.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

constexpr const char* kAsked[] = {"auto", "nccl", "oneshot", "host"};

std::string VersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// The first two ranks that share a device, in words; "" = each has its own.
std::string SharedDevice(absl::Span<const RankFacts> ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t other = 0; other < r; ++other) {
      if (ranks[other].device != ranks[r].device || ranks[other].host != ranks[r].host) continue;
      return absl::StrCat("ranks ", other, " and ", r, " share a device");
    }
  }
  return "";
}

// Why these ranks cannot use NCCL; "" = they can.
std::string ProblemWithNccl(absl::Span<const RankFacts> ranks) {
  if (ranks[0].exact) return "NCCL does not sum in rank order, and --exact needs it";
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].nccl == 0) return absl::StrCat("rank ", r, " has no NCCL");
    if (ranks[r].nccl == ranks[0].nccl) continue;
    return absl::StrCat("rank 0 has NCCL ", VersionName(ranks[0].nccl), ", rank ", r, " has ",
                        VersionName(ranks[r].nccl));
  }
  return SharedDevice(ranks);
}

// Why they cannot open each other's memory. On a shared device they can, but two kernels that wait
// for each other may then take turns of milliseconds.
std::string ProblemWithOneShot(absl::Span<const RankFacts> ranks) {
  if (ranks.size() > kMostOneShotRanks)
    return absl::StrCat(ranks.size(), " ranks, at most ", kMostOneShotRanks);
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].host != ranks[0].host) return absl::StrCat("ranks 0 and ", r, " are on two hosts");
    for (size_t other = 0; other < r; ++other) {
      if (ranks[r].process == ranks[other].process)
        return absl::StrCat("ranks ", other, " and ", r, " are threads of one process");
    }
  }
  return ranks[0].asked == "oneshot" ? "" : SharedDevice(ranks);
}

// A number for NCCL_HOSTID. NCCL tells hosts apart by it if it is set, so ranks that share a device
// may use it as if they were on several hosts.
std::array<uint8_t, 16> NumberOf(const std::string& host_id) {
  std::array<uint8_t, 16> number = {};
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : host_id) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  std::memcpy(number.data(), &hash, sizeof hash);
  return number;
}

// A number that is equal for all processes of a host. Zeros if the system does not provide one:
// then all are assumed to be on one host, and ranks on other hosts cannot open each other's memory.
std::array<uint8_t, 16> HostNumber() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0')
    return NumberOf(id);
  std::array<uint8_t, 16> number = {};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  size_t digits = 0;
  for (const char c : text) {
    if (!std::isxdigit(static_cast<unsigned char>(c)) || digits == 2 * number.size()) continue;
    const int value = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    number[digits / 2] = static_cast<uint8_t>(number[digits / 2] * 16 + value);
    ++digits;
  }
  return number;
}

// Facts as floats, which hold such numbers exactly.
constexpr size_t kFactWords = 6 + sizeof(RankFacts::device) + sizeof(RankFacts::host);

void Write(const RankFacts& facts, absl::Span<float> words) {
  const auto* asked = std::find(std::begin(kAsked), std::end(kAsked), facts.asked);
  words[0] = static_cast<float>(asked - std::begin(kAsked));
  words[1] = static_cast<float>(facts.nccl / 1000);
  words[2] = static_cast<float>(facts.nccl % 1000);
  words[3] = static_cast<float>(facts.process / 65536);
  words[4] = static_cast<float>(facts.process % 65536);
  words[5] = facts.exact ? 1.0f : 0.0f;
  std::copy(facts.device.begin(), facts.device.end(), words.begin() + 6);
  std::copy(facts.host.begin(), facts.host.end(), words.begin() + 6 + facts.device.size());
}

RankFacts Read(absl::Span<const float> words) {
  RankFacts facts;
  facts.asked = kAsked[static_cast<size_t>(words[0])];
  facts.nccl = static_cast<int>(words[1]) * 1000 + static_cast<int>(words[2]);
  facts.process = static_cast<int>(words[3]) * 65536 + static_cast<int>(words[4]);
  facts.exact = words[5] != 0;
  for (size_t i = 0; i < facts.device.size(); ++i) {
    facts.device[i] = static_cast<uint8_t>(words[6 + i]);
    facts.host[i] = static_cast<uint8_t>(words[6 + facts.device.size() + i]);
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
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].exact == ranks[0].exact) continue;
    return absl::InvalidArgumentError(absl::StrCat("--exact: rank ", ranks[0].exact ? 0 : r,
                                                   " was given it, rank ", ranks[0].exact ? r : 0,
                                                   " was not"));
  }
  CollectivesChoice choice;
  const std::string& asked = ranks[0].asked;
  if (asked == "host") return choice;
  choice.reason = ProblemWithNccl(ranks);
  choice.one_shot_reason = ProblemWithOneShot(ranks);
  choice.nccl = asked != "oneshot" && choice.reason.empty();
  choice.one_shot = asked != "nccl" && choice.one_shot_reason.empty();
  if (asked == "auto" || choice.nccl || choice.one_shot) return choice;
  return absl::FailedPreconditionError(absl::StrCat(
      "--communicator=", asked, ": ", asked == "nccl" ? choice.reason : choice.one_shot_reason,
      "; --communicator=host works without it"));
}

namespace {

// Collective: the ranks choose together.
absl::StatusOr<CollectivesChoice> Choose(const BackendOptions& options, const DeviceFacts& device) {
  comm::Communicator* const communicator = options.communicator;
  const std::string& kind = options.collectives.kind;
  const bool known = std::find(std::begin(kAsked), std::end(kAsked), kind) != std::end(kAsked);
  COPPICE_RETURN_IF_ERROR(Agree(
      communicator,
      known ? absl::OkStatus()
            : absl::InvalidArgumentError(absl::StrCat(
                  "--communicator must be auto, nccl, oneshot or host, got \"", kind, "\""))));
  // A kind that cannot use the library does not look for it.
  const bool looks = (kind == "auto" || kind == "nccl") && !options.exact;
  const absl::StatusOr<int> version = looks ? NcclVersion() : absl::StatusOr<int>(0);
  COPPICE_ASSIGN_OR_RETURN(
      const std::vector<RankFacts> ranks,
      ShareFacts({kind, version.value_or(0), device.uuid, HostNumber(), getpid(), options.exact},
                 communicator));
  absl::StatusOr<CollectivesChoice> choice = ChooseCollectives(ranks);
  const std::string here =
      version.ok() ? "" : absl::StrCat(" (here: ", version.status().message(), ")");
  if (!choice.ok())
    return absl::Status(choice.status().code(), absl::StrCat(choice.status().message(), here));
  if (!choice->nccl && !choice->reason.empty()) choice->reason += here;
  return choice;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeDeviceCollectives(
    const BackendOptions& options, const DeviceFacts& device, DeviceStream* stream) {
  comm::Communicator* const communicator = options.communicator;
  const CollectiveOptions& wanted = options.collectives;
  COPPICE_ASSIGN_OR_RETURN(CollectivesChoice choice, Choose(options, device));
  std::unique_ptr<DeviceCollectives> one_shot;
  if (choice.one_shot) {
    // A kernel ends by itself if the host, which has a deadline too, does not end it.
    const double limit_s = 2 * wanted.step_deadline_s + 5;
    auto joined = JoinOneShot(communicator, stream, {wanted.start_deadline_s, limit_s});
    if (!joined.ok() && wanted.kind == "oneshot") return joined.status();
    if (joined.ok()) {
      one_shot = *std::move(joined);
    } else {
      choice.one_shot_reason = std::string(joined.status().message());
    }
  }
  if (!choice.nccl && one_shot != nullptr) return one_shot;
  if (wanted.kind == "auto" && one_shot == nullptr)
    spdlog::info("no one-shot sums over the ranks: {}", choice.one_shot_reason);
  if (!choice.nccl) return MakeStagedCommunicator(communicator, choice.reason);
  COPPICE_ASSIGN_OR_RETURN(auto nccl, JoinNccl(communicator, stream, wanted.start_deadline_s));
  if (one_shot == nullptr) return nccl;
  return ChooseBySize(std::move(nccl), std::move(one_shot), communicator, stream,
                      wanted.start_deadline_s);
}

}  // namespace coppice::kernels::cuda
