#include "lab/bench/model/bench_main.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "base/status.h"
#include "kernels/cpu/kernel_target.h"
#include "lab/bench/model/subcommands.h"
#include "lab/bench/model/type_named.h"
#include "plan/step_limits.h"

using Words = std::vector<std::string>;

namespace coppice::bench {
namespace {

constexpr char kProgram[] = "coppice-bench";
constexpr char kUsage[] =
    "Measures passes of a model and single ops on the CPU, beside what this machine allows. A "
    "line of JSON for each measurement.\n\n"
    "  coppice-bench model --model=DIR --types=bf16,int8 --threads=1,2 --rows=1,8\n"
    "  coppice-bench forest --model=DIR --nodes=20,36 --beams=4 --contexts=1000\n"
    "  coppice-bench prefix --model=DIR --rows=16 --contexts=2000\n"
    "  coppice-bench kernels --types=bf16,int4 --rows=1,8,256";

struct BenchFlags {
  std::string model = "tests/models/stories260k", states_for;
  Words types = {"bf16"}, threads = {"1"};
  std::string kernels = "best";
  int repetitions = 5;
  Words rows = {"1", "8"};
  int prefill = 512, prefill_chunk = kDefaultPrefillChunk, context = 64;
  Words contexts = {"1000"}, nodes = {"20", "36"};
  int beams = 4;
};

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

absl::Status CheckTypes(const Words& types, bool of_kernels) {
  const Words of_models = {"auto", "f32", "bf16", "int8", "int4"};
  for (const std::string& type : types) {
    const bool known = of_kernels
                           ? FindType(type).has_value()
                           : std::find(of_models.begin(), of_models.end(), type) != of_models.end();
    if (known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--types: '", type, "', expected f32, bf16, int8, int4 or ",
                     of_kernels ? "a format of GGUF as q4_k" : "auto, as the model has them"));
  }
  return types.empty() ? absl::InvalidArgumentError("--types: none given") : absl::OkStatus();
}

FlagTable BenchFlagTable(const std::string& subcommand, BenchFlags* flags) {
  return {
      .program = kProgram,
      .about = kUsage,
      .groups = {{"Every measurement",
                  {{.name = "types",
                    .value = &flags->types,
                    .text =
                        "of weights: f32, bf16, int8, int4; models: also auto, as the model has "
                        "them; kernels: also formats of GGUF as q4_k"},
                   {.name = "threads", .value = &flags->threads, .text = "compute threads"},
                   {.name = "kernels",
                    .value = &flags->kernels,
                    .text = "instruction set: best, avx512_bf16, avx512, avx2 or scalar"},
                   {.name = "repetitions",
                    .value = &flags->repetitions,
                    .range = {1, 1000},
                    .text = "of each measurement; the median counts"}}},
                 {"model",
                  {{.name = "model",
                    .value = &flags->model,
                    .text = "model, forest, prefix: Hugging Face folder or GGUF file"},
                   {.name = "states_for",
                    .value = &flags->states_for,
                    .text = "model: folder of a draft for which it keeps states; empty: none"},
                   {.name = "rows",
                    .value = &flags->rows,
                    .text = "model, prefix: sequences that generate together; kernels: rows of a "
                            "pass"},
                   {.name = "prefill",
                    .value = &flags->prefill,
                    .range = {0, 1 << 20},
                    .text = "model: tokens of a prompt; 0: none"},
                   {.name = "prefill_chunk",
                    .value = &flags->prefill_chunk,
                    .range = {1, 512},
                    .text = "model: tokens of one prefill pass"},
                   {.name = "context",
                    .value = &flags->context,
                    .range = {1, 1 << 20},
                    .text = "model: tokens before the rows that generate; kernels: of attention; "
                            "prefix: of each context beside the common ones"}}},
                 {"forest",
                  {{.name = "nodes", .value = &flags->nodes, .text = "forest: rows of a forest"},
                   {.name = "beams",
                    .value = &flags->beams,
                    .range = {1, 512},
                    .text = "forest: beams over which the nodes are divided"},
                   {.name = "contexts",
                    .value = &flags->contexts,
                    .text = "forest: tokens before it; prefix: tokens in common"}}}},
      .check = [subcommand, flags](FlagFaults* faults) {
        faults->Add("types", CheckTypes(flags->types, subcommand == "kernels"));
        faults->Add("threads", Numbers("threads", flags->threads).status());
        faults->Add("rows", Numbers("rows", flags->rows).status());
        faults->Add("nodes", Numbers("nodes", flags->nodes).status());
        faults->Add("contexts", Numbers("contexts", flags->contexts).status());
        faults->Add("kernels", kernels::cpu::ChooseKernelTarget(flags->kernels));
      }};
}

absl::Status Run(const std::string& subcommand, const BenchFlags& flags) {
  COPPICE_ASSIGN_OR_RETURN(const auto threads, Numbers("threads", flags.threads));
  COPPICE_ASSIGN_OR_RETURN(const auto rows, Numbers("rows", flags.rows));
  COPPICE_ASSIGN_OR_RETURN(const auto nodes, Numbers("nodes", flags.nodes));
  const Words types = flags.types;
  const std::string dir = flags.model, kernels = flags.kernels;
  const int repetitions = flags.repetitions;
  if (subcommand == "model") {
    return RunModelBench({dir, types, threads, rows, flags.prefill, flags.prefill_chunk,
                          flags.context, repetitions, kernels, flags.states_for});
  }
  if (subcommand == "forest") {
    COPPICE_ASSIGN_OR_RETURN(const auto contexts, Numbers("contexts", flags.contexts));
    return RunForestBench(
        {dir, types, threads, nodes, flags.beams, contexts, repetitions, kernels});
  }
  if (subcommand == "prefix") {
    COPPICE_ASSIGN_OR_RETURN(const auto contexts, Numbers("contexts", flags.contexts));
    return RunPrefixBench({dir, types, threads, rows, contexts, flags.context, flags.prefill_chunk,
                           repetitions, kernels});
  }
  return RunKernelsBench({types, threads, rows, flags.context, repetitions, kernels});
}

}  // namespace

int BenchMain(int argc, char** argv) {
  const std::vector<std::string> subcommands = {"model", "forest", "prefix", "kernels"};
  const std::string subcommand = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
  if (!subcommand.empty()) {
    argv[1] = argv[0];
    --argc, ++argv;
  }
  BenchFlags flags;
  ParseProgramFlags(BenchFlagTable(subcommand, &flags), argc, argv);
  if (std::find(subcommands.begin(), subcommands.end(), subcommand) == subcommands.end()) {
    FailProgram(kProgram,
                absl::InvalidArgumentError(absl::StrCat(
                    "'", subcommand, "', expected model, forest, prefix or kernels first")));
    return 2;
  }
  const absl::Status status = Run(subcommand, flags);
  return status.ok() ? 0 : FailProgram(kProgram, status);
}

}  // namespace coppice::bench
