// Speed of the CUDA backend against floors: what must be read and written, over the bandwidth that
// the device was measured to have. Its usage is kUsage.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/targets.h"

namespace coppice::bench {
namespace {

constexpr char kUsage[] =
    "coppice-bench-cuda PART [--bandwidth=BYTES_PER_SECOND] [--json=FILE] [--tuning_cache=DIR] "
    "[--list]\n"
    "PART: facts, ceilings, tune, matmul, attention, wide, small, candidate_list, step, draft, "
    "round,\n"
    "exact, goals.\n"
    "--bandwidth gives floors; `ceilings` measures it. --json: one object a line, appended.\n"
    "`goals` measures nothing: it compares what FILE has with the goals, and appends what it "
    "finds.\n"
    "--tuning_cache: where tuned products are kept; without it steps are not tuned.\n"
    "--list measures nothing and needs no device: it prints the cases and their bytes.\n";

struct Part {
  const char* name;
  absl::Status (*run)(Report* report, DeviceTimer* timer);
};

absl::Status PrintFacts(Report* report, DeviceTimer* timer) {
  if (!report->Wants({"facts", "name, memory, multiprocessors, driver", 0})) {
    return absl::OkStatus();
  }
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const kernels::cuda::DeviceFacts& facts = timer->facts();
  std::printf("%s, %d multiprocessors, driver for CUDA %d.%d, runtime %d.%d%s\n",
              facts.description.c_str(), facts.multiprocessors, driver / 1000, driver % 1000 / 10,
              runtime / 1000, runtime % 1000 / 10, facts.has_wgmma ? ", wgmma" : "");
  return absl::OkStatus();
}

constexpr Part kParts[] = {{"facts", PrintFacts},         {"ceilings", BenchCeilings},
                           {"tune", BenchTune},           {"matmul", BenchMatMul},
                           {"attention", BenchAttention}, {"wide", BenchWideAttention},
                           {"small", BenchElementwise},   {"candidate_list", BenchCandidateLists},
                           {"step", BenchStep},           {"draft", BenchDrafts},
                           {"round", BenchRounds},        {"exact", BenchExact}};
constexpr char kGoals[] = "goals";

void PrintGoal(const Goal& goal, std::FILE* json) {
  const char* const bound = goal.at_least ? "at least" : "at most";
  const std::string value = goal.value.has_value() ? absl::StrFormat("%.2f", *goal.value) : "";
  const char* const met = value.empty() ? "not measured" : goal.met() ? "met" : "NOT MET";
  absl::PrintF("%-15s %-60s %10s %-2s %8s %.4g %s: %s\n", kGoals, goal.what, value, goal.unit,
               bound, goal.bound, goal.unit, met);
  if (json == nullptr) return;
  absl::FPrintF(json,
                "{\"part\":\"%s\",\"name\":\"%s\",\"value\":%s,\"unit\":\"%s\",\"%s\":%.4g,"
                "\"met\":%s}\n",
                kGoals, goal.what, value.empty() ? "null" : value, goal.unit,
                goal.at_least ? "at_least" : "at_most", goal.bound,
                value.empty() ? "null"
                : goal.met()  ? "true"
                              : "false");
}

// Without a file: what the goals are.
absl::Status PrintGoals(const std::string& json_path, std::FILE* json) {
  Measured measured;
  if (!json_path.empty()) {
    absl::StatusOr<Measured> read = Measured::Read(json_path);
    if (!read.ok()) return read.status();
    measured = *std::move(read);
  }
  for (const Goal& goal : GoalsOf(measured)) PrintGoal(goal, json);
  return absl::OkStatus();
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "coppice-bench-cuda: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::Status RunPart(const Part& part, Report report) {
  std::unique_ptr<DeviceTimer> timer;
  if (!report.listing()) {
    absl::StatusOr<std::unique_ptr<DeviceTimer>> created = DeviceTimer::Create();
    if (!created.ok()) return created.status();
    timer = *std::move(created);
  }
  return part.run(&report, timer.get());
}

int Main(int argc, char** argv) {
  const Part* wanted = nullptr;
  bool goals = false;
  double bandwidth = 0;
  std::string json_path, tuning_cache;
  bool listing = false;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    bool known = argument == "--list";
    listing |= known;
    if (absl::ConsumePrefix(&argument, "--bandwidth=")) {
      known = absl::SimpleAtod(argument, &bandwidth) && bandwidth > 0;
    } else if (absl::ConsumePrefix(&argument, "--json=")) {
      json_path = std::string(argument);
      known = true;
    }
    if (absl::ConsumePrefix(&argument, "--tuning_cache=")) {
      tuning_cache = std::string(argument);
      known = true;
    }
    if (wanted == nullptr && argument == kGoals) goals = known = true;
    for (const Part& part : kParts) {
      if (goals || wanted != nullptr || argument != part.name) continue;
      wanted = &part;
      known = true;
    }
    if (known) continue;
    std::fprintf(stderr, "coppice-bench-cuda: unknown argument '%s'\n%s", argv[i], kUsage);
    return 2;
  }
  if (wanted == nullptr && !goals) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::FILE* json = json_path.empty() ? nullptr : std::fopen(json_path.c_str(), "a");
  if (json == nullptr && !json_path.empty())
    return Fail(absl::NotFoundError(json_path + " cannot be written"));
  const absl::Status status =
      goals ? PrintGoals(listing ? "" : json_path, json)
            : RunPart(*wanted, Report(bandwidth, json, listing, tuning_cache));
  if (json != nullptr) std::fclose(json);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) { return coppice::bench::Main(argc, argv); }
