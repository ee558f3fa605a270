#include "lab/experiments/lab_main.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/program.h"
#include "base/status.h"
#include "decoding/method.h"
#include "lab/experiments/experiments.h"
#include "lab/experiments/replica_pair.h"
#include "lab/experiments/report.h"
#include "lab/experiments/row_model.h"

using Words = std::vector<std::string>;

namespace coppice::lab {
namespace {

constexpr char kProgram[] = "coppice-lab";
constexpr char kUsage[] =
    "Measures the methods of the table against each other and against the optimum, on toy tables "
    "or on two models in this process.\n\n"
    "  coppice-lab --list\n"
    "  coppice-lab --experiment=methods --json=methods.json\n"
    "  coppice-lab --experiment=optimal_table1 --target=DIR --draft=DIR --prompts=FILE.jsonl\n"
    "  coppice-lab --source=zipf --methods=gumbel_coupling,dsbd,none --widths=2,4 --depths=2,4\n\n"
    "lab/plot_lab.py draws what --json wrote.";

struct LabFlags {
  bool list = false;
  std::string experiment = "grid", json;
  Words methods, decodings, widths, draft_widths, depths, samplings, drafts;
  int nodes = 256, repeats = 16, optimum_nodes = 200;
  int sequences = 64, tokens = 48, draft_top_k = 64;
  uint64_t seed = 1;
  std::string source = "pair";
  std::string target = "tests/models/stories260k", draft = "tests/models/stories260k-draft";
  std::string prompts = "lab/experiments/prompts.jsonl";
  bool ignore_eos = false;
  int threads = 1;
  int64_t kv_bytes = int64_t{256} << 20;
  int vocabulary = 64;
  uint64_t table_seed = 1;
  double noise = 0.7, zipf_exponent = 1.2, spread = 1.5;
  int power = 6;
};

FlagGroup CellGroup(LabFlags* flags) {
  return {"Cells",
          {{.name = "methods",
            .value = &flags->methods,
            .text = "all, none (the target alone), names of the table, with options: "
                    "dsbd:width_threshold=0.9:min_width=2"},
           {.name = "decodings",
            .value = &flags->decodings,
            .own_default = "all a method serves",
            .text = "multinomial, beam_sampling, ..."},
           {.name = "widths", .value = &flags->widths, .text = "beam widths W"},
           {.name = "draft_widths",
            .value = &flags->draft_widths,
            .text = "draft nodes of a layer W_S; 0 = 4 at W = 1, else 2 W"},
           {.name = "depths", .value = &flags->depths, .text = "draft depths gamma"},
           {.name = "samplings",
            .value = &flags->samplings,
            .text = "T=0.7/top_k=20/top_p=0.9/min_p=0.1/mode=row_raw, any part"},
           {.name = "draft_top_k",
            .value = &flags->draft_top_k,
            .range = {1},
            .text = "entries of a draft row"},
           {.name = "sequences",
            .value = &flags->sequences,
            .range = {1},
            .text = "sequences of every cell"},
           {.name = "tokens", .value = &flags->tokens, .range = {2}, .text = "longest sequence"},
           {.name = "optimum_nodes",
            .value = &flags->optimum_nodes,
            .range = {0},
            .text = "nodes of a cell at which the optimum is computed; 0 = none"}}};
}

FlagGroup PairGroup(LabFlags* flags) {
  return {"Two models (--source=pair)",
          {{.name = "target", .value = &flags->target, .text = "Hugging Face folder or GGUF file"},
           {.name = "draft", .value = &flags->draft, .text = "Hugging Face folder or GGUF file"},
           {.name = "prompts",
            .value = &flags->prompts,
            .text = "JSON lines with \"prompt\", a text or token ids"},
           {.name = "ignore_eos", .value = &flags->ignore_eos, .text = "generate to --tokens"},
           {.name = "threads", .value = &flags->threads, .text = "compute threads"},
           {.name = "kv_bytes", .value = &flags->kv_bytes, .text = "bytes of either KV pool"}}};
}

FlagGroup ToyGroup(LabFlags* flags) {
  return {"Toy rows (--source=random, zipf, hashlm)",
          {{.name = "vocabulary",
            .value = &flags->vocabulary,
            .range = {2},
            .text = "tables, hashlm: tokens"},
           {.name = "table_seed",
            .value = &flags->table_seed,
            .text = "tables, hashlm: which tables, which target"},
           {.name = "noise",
            .value = &flags->noise,
            .text = "tables: the draft's logits differ by this; 0 = equal models"},
           {.name = "zipf_exponent",
            .value = &flags->zipf_exponent,
            .text = "zipf: p ~ rank^-exponent"},
           {.name = "spread",
            .value = &flags->spread,
            .text = "random: width of the logits; large = peaked rows"},
           {.name = "power",
            .value = &flags->power,
            .range = {1},
            .text = "hashlm: 3 flat, 8 peaked"}}};
}

absl::StatusOr<std::vector<int>> Numbers(const char* flag, const Words& words) {
  std::vector<int> out;
  for (const std::string& word : words) {
    int value = 0;
    if (!absl::SimpleAtoi(word, &value)) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": '", word, "' is no number"));
    }
    out.push_back(value);
  }
  return out;
}

// A list that a flag gives replaces the experiment's.
absl::StatusOr<Experiment> ReadExperiment(const LabFlags& flags) {
  COPPICE_ASSIGN_OR_RETURN(Experiment experiment, FindExperiment(flags.experiment));
  COPPICE_ASSIGN_OR_RETURN(const auto widths, Numbers("widths", flags.widths));
  COPPICE_ASSIGN_OR_RETURN(const auto draft_widths, Numbers("draft_widths", flags.draft_widths));
  COPPICE_ASSIGN_OR_RETURN(const auto depths, Numbers("depths", flags.depths));
  COPPICE_ASSIGN_OR_RETURN(const auto drafts, Numbers("drafts", flags.drafts));
  std::vector<sampling::DecodingKind> decodings;
  for (const std::string& name : flags.decodings) {
    const auto kind = sampling::ParseDecodingKind(name);
    if (!kind.ok())
      return absl::InvalidArgumentError(absl::StrCat("--decodings: ", kind.status().message()));
    decodings.push_back(*kind);
  }
  const auto replace = [](const auto& given, auto* list) {
    if (!given.empty()) *list = given;
  };
  for (Grid& grid : experiment.grids) {
    replace(flags.methods, &grid.methods);
    replace(flags.samplings, &grid.samplings);
    replace(decodings, &grid.decodings);
    replace(widths, &grid.widths);
    replace(draft_widths, &grid.draft_widths);
    replace(depths, &grid.depths);
  }
  replace(flags.methods, &experiment.methods);
  replace(flags.samplings, &experiment.samplings);
  replace(drafts, &experiment.drafts);
  return experiment;
}

NodeStudyOptions NodeStudyOf(const LabFlags& flags, const Experiment& experiment,
                             const decoding::DecodingParams& base) {
  NodeStudyOptions options;
  options.samplings = experiment.samplings;
  options.drafts = experiment.drafts;
  options.methods = experiment.methods;
  options.sequences = flags.sequences;
  options.nodes = flags.nodes;
  options.repeats = flags.repeats;
  options.seed = flags.seed;
  options.base = base;
  return options;
}

decoding::DecodingParams BaseOf(const LabFlags& flags) {
  decoding::DecodingParams base;
  base.max_tokens = flags.tokens;
  base.draft_top_k = flags.draft_top_k;
  return base;
}

// Whether the flags give an experiment, before any model is loaded.
absl::Status CheckExperiment(const LabFlags& flags) {
  if (flags.list) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const Experiment experiment, ReadExperiment(flags));
  for (const Grid& grid : experiment.grids)
    COPPICE_RETURN_IF_ERROR(MakeCells(grid, BaseOf(flags)).status());
  if (!experiment.single_nodes()) return absl::OkStatus();
  return CheckNodeStudy(NodeStudyOf(flags, experiment, BaseOf(flags)));
}

FlagTable LabFlagTable(LabFlags* flags) {
  return {.program = kProgram,
          .about = kUsage,
          .groups = {{"Experiment",
                      {{.name = "list",
                        .value = &flags->list,
                        .text = "print the experiments and the methods, and stop"},
                       {.name = "experiment",
                        .value = &flags->experiment,
                        .text = "what to measure, see --list"},
                       {.name = "seed", .value = &flags->seed, .text = "of everything drawn"},
                       {.name = "json",
                        .value = &flags->json,
                        .text = "file that receives the report as JSON"}}},
                     CellGroup(flags),
                     {"Single nodes",
                      {{.name = "drafts", .value = &flags->drafts, .text = "numbers of drafts n"},
                       {.name = "nodes", .value = &flags->nodes, .range = {1}, .text = "how many"},
                       {.name = "repeats",
                        .value = &flags->repeats,
                        .range = {1},
                        .text = "seeds of every method at every node"}}},
                     {"Source",
                      {{.name = "source",
                        .value = &flags->source,
                        .words = {"random", "zipf", "hashlm", "pair"},
                        .text = "tables (random, zipf), a toy model, or two models"}}},
                     PairGroup(flags),
                     ToyGroup(flags)},
          .renamed = {{"warps", "samplings"}, {"draft_support", "draft_top_k"}},
          .check = [flags](FlagFaults* faults) { faults->Add(CheckExperiment(*flags)); }};
}

absl::StatusOr<std::unique_ptr<ModelPair>> MakePair(const LabFlags& flags) {
  const std::string& source = flags.source;
  if (source == "random" || source == "zipf") {
    TableOptions options;
    options.vocab_size = flags.vocabulary;
    options.seed = flags.table_seed;
    options.noise = flags.noise;
    options.spread = flags.spread;
    if (source == "zipf") options.zipf_exponent = flags.zipf_exponent;
    return MakeTablePair(MakeRandomTables(options));
  }
  if (source == "hashlm") {
    HashLmOptions options;
    options.vocab_size = std::min(flags.vocabulary, 1000);
    options.salt = flags.table_seed;
    options.power = std::min(flags.power, 12);
    return MakeTablePair(MakeHashLmRows(options));
  }
  ReplicaPairOptions options;
  options.target_dir = flags.target;
  options.draft_dir = flags.draft;
  options.prompts = flags.prompts;
  options.threads = flags.threads;
  options.kv_bytes = flags.kv_bytes;
  options.max_tokens = flags.tokens;
  options.ignore_eos = flags.ignore_eos;
  return LoadReplicaPair(options);
}

absl::Status RunGrids(const LabFlags& flags, const Experiment& experiment,
                      const decoding::DecodingParams& base, ModelPair* pair, LabReport* report) {
  std::vector<Cell> cells;
  for (const Grid& grid : experiment.grids) {
    COPPICE_ASSIGN_OR_RETURN(GridCells made, MakeCells(grid, base));
    cells.insert(cells.end(), made.cells.begin(), made.cells.end());
    report->skipped.insert(report->skipped.end(), made.skipped.begin(), made.skipped.end());
  }
  const RunOptions options{flags.sequences, flags.seed, flags.optimum_nodes};
  for (size_t i = 0; i < cells.size(); ++i) {
    std::fprintf(stderr, "[%zu/%zu] %s\n", i + 1, cells.size(), CellName(cells[i]).c_str());
    COPPICE_ASSIGN_OR_RETURN(CellResult result, RunCell(cells[i], options, pair));
    report->cells.push_back({cells[i], std::move(result)});
  }
  return absl::OkStatus();
}

absl::Status RunNodes(const LabFlags& flags, const Experiment& experiment,
                      const decoding::DecodingParams& base, ModelPair* pair, LabReport* report) {
  COPPICE_ASSIGN_OR_RETURN(report->nodes, RunNodeStudy(NodeStudyOf(flags, experiment, base), pair,
                                                       [](const std::string& what) {
                                                         std::fprintf(stderr, "%s\n", what.c_str());
                                                       }));
  return absl::OkStatus();
}

void PrintLists() {
  for (const Experiment& experiment : Experiments()) {
    absl::PrintF("%-18s %s\n", experiment.name, experiment.what);
  }
  absl::PrintF("\nmethods (--methods)\n");
  for (const decoding::MethodRow& row : decoding::Methods()) {
    absl::PrintF("%-24s %-22s %s%s\n", row.name, row.source, row.lossless ? "" : "(not lossless) ",
                 row.distribution);
  }
}

absl::Status Run(const LabFlags& flags) {
  COPPICE_ASSIGN_OR_RETURN(const Experiment experiment, ReadExperiment(flags));
  const std::string path = flags.json;
  std::ofstream file;
  if (!path.empty()) {
    file.open(path);
    if (!file) return absl::NotFoundError(absl::StrCat("--json: cannot write ", path));
  }
  COPPICE_ASSIGN_OR_RETURN(const auto pair, MakePair(flags));
  decoding::DecodingParams base = BaseOf(flags);
  base.stop_ids = pair->stop_ids();
  LabReport report;
  report.experiment = std::string(experiment.name);
  report.source = pair->Describe();
  report.seed = flags.seed;
  report.sequences = flags.sequences;
  COPPICE_RETURN_IF_ERROR(experiment.single_nodes()
                              ? RunNodes(flags, experiment, base, pair.get(), &report)
                              : RunGrids(flags, experiment, base, pair.get(), &report));
  std::fputs(ReportTable(report).c_str(), stdout);
  if (!path.empty() && !(file << ReportJson(report) << std::flush)) {
    return absl::DataLossError(absl::StrCat("--json: writing ", path, " failed"));
  }
  return absl::OkStatus();
}

}  // namespace

int LabMain(int argc, char** argv) {
  LabFlags flags;
  ParseProgramFlags(LabFlagTable(&flags), argc, argv);
  if (flags.list) {
    PrintLists();
    return 0;
  }
  const absl::Status status = Run(flags);
  return status.ok() ? 0 : FailProgram(kProgram, status);
}

}  // namespace coppice::lab
