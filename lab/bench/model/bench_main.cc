#include "lab/bench/model/bench_main.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "base/status.h"
#include "lab/bench/model/subcommands.h"

using Words = std::vector<std::string>;

ABSL_FLAG(std::string, model, "tests/models/text2sql-target", "model, forest: Hugging Face folder");
ABSL_FLAG(Words, types, Words({"bf16"}), "of weights: f32, bf16, int8, int4");
ABSL_FLAG(Words, threads, Words({"1"}), "compute threads");
ABSL_FLAG(std::string, kernels, "best",
          "instruction set: best, avx512_bf16, avx512, avx2 or scalar");
ABSL_FLAG(int, repetitions, 5, "of each measurement; the median counts");
ABSL_FLAG(Words, rows, Words({"1", "8"}),
          "model: sequences that generate together; kernels: rows of a pass");
ABSL_FLAG(int, prefill, 512, "model: tokens of a prompt; 0: none");
ABSL_FLAG(int, prefill_chunk, 256, "model: tokens of one prefill pass");
ABSL_FLAG(int, context, 64, "model: tokens before the rows that generate; kernels: of attention");
ABSL_FLAG(Words, contexts, Words({"1000"}), "forest: tokens before the forest");
ABSL_FLAG(Words, nodes, Words({"20", "36"}), "forest: rows of a forest");
ABSL_FLAG(int, beams, 4, "forest: beams over which the nodes are divided");

namespace coppice::bench {
namespace {

constexpr char kProgram[] = "coppice-bench";
constexpr char kUsage[] =
    "Measures passes of a model and single ops on the CPU, beside what this machine allows. A "
    "line of JSON for each measurement.\n\n"
    "  coppice-bench model --model=DIR --types=bf16,int8 --threads=1,2 --rows=1,8\n"
    "  coppice-bench forest --model=DIR --nodes=20,36 --beams=4 --contexts=1000\n"
    "  coppice-bench kernels --types=bf16,int4 --rows=1,8,256";

ProgramUsage FlagUsage() {
  return {kUsage,
          {{"Every measurement", {"types", "threads", "kernels", "repetitions"}},
           {"model", {"model", "rows", "prefill", "prefill_chunk", "context"}},
           {"forest", {"nodes", "beams", "contexts"}}}};
}

absl::StatusOr<std::vector<int>> Numbers(const char* flag, const Words& words) {
  std::vector<int> numbers;
  for (const std::string& word : words) {
    int number = 0;
    if (!absl::SimpleAtoi(word, &number) || number < 1 || number > 4096) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": '", word, "', expected numbers of 1 to 4096"));
    }
    numbers.push_back(number);
  }
  if (!numbers.empty()) return numbers;
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": none given"));
}

absl::Status CheckBetween(const char* flag, int value, int least, int most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": ", value, ", expected ", least, " to ", most));
}

absl::Status CheckFlags() {
  for (const std::string& type : absl::GetFlag(FLAGS_types)) {
    if (type != "f32" && type != "bf16" && type != "int8" && type != "int4") {
      return absl::InvalidArgumentError(
          absl::StrCat("--types: '", type, "', expected f32, bf16, int8 or int4"));
    }
  }
  if (absl::GetFlag(FLAGS_types).empty()) return absl::InvalidArgumentError("--types: none given");
  COPPICE_RETURN_IF_ERROR(CheckBetween("repetitions", absl::GetFlag(FLAGS_repetitions), 1, 1000));
  COPPICE_RETURN_IF_ERROR(CheckBetween("prefill", absl::GetFlag(FLAGS_prefill), 0, 1 << 20));
  COPPICE_RETURN_IF_ERROR(
      CheckBetween("prefill_chunk", absl::GetFlag(FLAGS_prefill_chunk), 1, 512));
  COPPICE_RETURN_IF_ERROR(CheckBetween("context", absl::GetFlag(FLAGS_context), 1, 1 << 20));
  return CheckBetween("beams", absl::GetFlag(FLAGS_beams), 1, 512);
}

absl::Status Run(const std::string& subcommand) {
  COPPICE_RETURN_IF_ERROR(CheckFlags());
  COPPICE_ASSIGN_OR_RETURN(const auto threads, Numbers("threads", absl::GetFlag(FLAGS_threads)));
  COPPICE_ASSIGN_OR_RETURN(const auto rows, Numbers("rows", absl::GetFlag(FLAGS_rows)));
  COPPICE_ASSIGN_OR_RETURN(const auto nodes, Numbers("nodes", absl::GetFlag(FLAGS_nodes)));
  const Words types = absl::GetFlag(FLAGS_types);
  const std::string dir = absl::GetFlag(FLAGS_model), kernels = absl::GetFlag(FLAGS_kernels);
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  if (subcommand == "model") {
    return RunModelBench({dir, types, threads, rows, absl::GetFlag(FLAGS_prefill),
                          absl::GetFlag(FLAGS_prefill_chunk), absl::GetFlag(FLAGS_context),
                          repetitions, kernels});
  }
  if (subcommand == "forest") {
    COPPICE_ASSIGN_OR_RETURN(const auto contexts,
                             Numbers("contexts", absl::GetFlag(FLAGS_contexts)));
    return RunForestBench(
        {dir, types, threads, nodes, absl::GetFlag(FLAGS_beams), contexts, repetitions, kernels});
  }
  return RunKernelsBench(
      {types, threads, rows, absl::GetFlag(FLAGS_context), repetitions, kernels});
}

}  // namespace

int BenchMain(int argc, char** argv) {
  const std::vector<std::string> subcommands = {"model", "forest", "kernels"};
  const std::string subcommand = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
  if (!subcommand.empty()) {
    argv[1] = argv[0];
    --argc, ++argv;
  }
  ParseProgramFlags(kProgram, FlagUsage(), argc, argv);
  if (std::find(subcommands.begin(), subcommands.end(), subcommand) == subcommands.end()) {
    FailProgram(kProgram, absl::InvalidArgumentError(absl::StrCat(
                              "'", subcommand, "', expected model, forest or kernels first")));
    return 2;
  }
  const absl::Status status = Run(subcommand);
  return status.ok() ? 0 : FailProgram(kProgram, status);
}

}  // namespace coppice::bench
