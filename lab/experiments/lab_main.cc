#include "lab/experiments/lab_main.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
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

ABSL_FLAG(bool, list, false, "print the experiments and the methods, and stop");
ABSL_FLAG(std::string, experiment, "grid", "what to measure, see --list");
ABSL_FLAG(Words, methods, {},
          "all, none (the target alone), names of the table, with options: "
          "dsbd:width_threshold=0.9:min_width=2");
ABSL_FLAG(Words, decodings, {}, "multinomial, beam_sampling, ...; default: all a method serves");
ABSL_FLAG(Words, widths, {}, "beam widths W");
ABSL_FLAG(Words, draft_widths, {}, "draft nodes of a layer W_S; 0 = 4 at W = 1, else 2 W");
ABSL_FLAG(Words, depths, {}, "draft depths gamma");
ABSL_FLAG(Words, samplings, {}, "T=0.7/top_k=20/top_p=0.9/min_p=0.1/mode=row_raw, any part");
ABSL_FLAG(Words, drafts, {}, "single nodes: numbers of drafts n");
ABSL_FLAG(int, nodes, 256, "single nodes: how many");
ABSL_FLAG(int, repeats, 16, "single nodes: seeds of every method at every node");
ABSL_FLAG(int, optimum_nodes, 200, "nodes of a cell at which the optimum is computed; 0 = none");
ABSL_FLAG(int, sequences, 64, "sequences of every cell");
ABSL_FLAG(int, tokens, 48, "longest sequence");
ABSL_FLAG(int, draft_top_k, 64, "entries of a draft row");
ABSL_FLAG(uint64_t, seed, 1, "of everything drawn");
ABSL_FLAG(std::string, json, "", "file that receives the report as JSON");
ABSL_FLAG(std::string, source, "pair", "random or zipf (tables), hashlm, or pair (two models)");
ABSL_FLAG(std::string, target, "tests/models/text2sql-target", "pair: Hugging Face folder");
ABSL_FLAG(std::string, draft, "tests/models/text2sql-draft", "pair: Hugging Face folder");
ABSL_FLAG(std::string, prompts, "lab/experiments/prompts.jsonl",
          "pair: JSON lines with \"prompt\", a text or token ids");
ABSL_FLAG(bool, ignore_eos, false, "pair: generate to --tokens");
ABSL_FLAG(int, threads, 1, "pair: compute threads");
ABSL_FLAG(int64_t, kv_bytes, int64_t{256} << 20, "pair: bytes of either KV pool");
ABSL_FLAG(int, vocabulary, 64, "tables, hashlm: tokens");
ABSL_FLAG(uint64_t, table_seed, 1, "tables, hashlm: which tables, which target");
ABSL_FLAG(double, noise, 0.7, "tables: the draft's logits differ by this; 0 = equal models");
ABSL_FLAG(double, zipf_exponent, 1.2, "zipf: p ~ rank^-exponent");
ABSL_FLAG(double, spread, 1.5, "random: width of the logits; large = peaked rows");
ABSL_FLAG(int, power, 6, "hashlm: 3 flat, 8 peaked");

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

ProgramUsage FlagUsage() {
  return {kUsage,
          {{"Experiment", {"list", "experiment", "seed", "json"}},
           {"Cells",
            {"methods", "decodings", "widths", "draft_widths", "depths", "samplings", "draft_top_k",
             "sequences", "tokens", "optimum_nodes"}},
           {"Single nodes", {"drafts", "nodes", "repeats"}},
           {"Source", {"source"}},
           {"Two models (--source=pair)",
            {"target", "draft", "prompts", "ignore_eos", "threads", "kv_bytes"}},
           {"Toy rows (--source=random, zipf, hashlm)",
            {"vocabulary", "table_seed", "noise", "zipf_exponent", "spread", "power"}}}};
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

absl::Status CheckAtLeast(const char* flag, int value, int least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": ", value, ", expected at least ", least));
}

absl::Status CheckFlags() {
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("sequences", absl::GetFlag(FLAGS_sequences), 1));
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("tokens", absl::GetFlag(FLAGS_tokens), 2));
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("nodes", absl::GetFlag(FLAGS_nodes), 1));
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("repeats", absl::GetFlag(FLAGS_repeats), 1));
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("optimum_nodes", absl::GetFlag(FLAGS_optimum_nodes), 0));
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("draft_top_k", absl::GetFlag(FLAGS_draft_top_k), 1));
  COPPICE_RETURN_IF_ERROR(CheckAtLeast("vocabulary", absl::GetFlag(FLAGS_vocabulary), 2));
  return CheckAtLeast("power", absl::GetFlag(FLAGS_power), 1);
}

absl::StatusOr<std::unique_ptr<ModelPair>> MakePair() {
  const std::string source = absl::GetFlag(FLAGS_source);
  if (source == "random" || source == "zipf") {
    TableOptions options;
    options.vocab_size = absl::GetFlag(FLAGS_vocabulary);
    options.seed = absl::GetFlag(FLAGS_table_seed);
    options.noise = absl::GetFlag(FLAGS_noise);
    options.spread = absl::GetFlag(FLAGS_spread);
    if (source == "zipf") options.zipf_exponent = absl::GetFlag(FLAGS_zipf_exponent);
    return MakeTablePair(MakeRandomTables(options));
  }
  if (source == "hashlm") {
    HashLmOptions options;
    options.vocab_size = std::min(absl::GetFlag(FLAGS_vocabulary), 1000);
    options.salt = absl::GetFlag(FLAGS_table_seed);
    options.power = std::min(absl::GetFlag(FLAGS_power), 12);
    return MakeTablePair(MakeHashLmRows(options));
  }
  if (source != "pair") {
    return absl::InvalidArgumentError(
        absl::StrCat("--source: '", source, "', expected random, zipf, hashlm or pair"));
  }
  ReplicaPairOptions options;
  options.target_dir = absl::GetFlag(FLAGS_target);
  options.draft_dir = absl::GetFlag(FLAGS_draft);
  options.prompts = absl::GetFlag(FLAGS_prompts);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.kv_bytes = absl::GetFlag(FLAGS_kv_bytes);
  options.max_tokens = absl::GetFlag(FLAGS_tokens);
  options.ignore_eos = absl::GetFlag(FLAGS_ignore_eos);
  return LoadReplicaPair(options);
}

// A list that a flag gives replaces the experiment's.
absl::StatusOr<Experiment> ReadExperiment() {
  COPPICE_ASSIGN_OR_RETURN(Experiment experiment, FindExperiment(absl::GetFlag(FLAGS_experiment)));
  COPPICE_ASSIGN_OR_RETURN(const auto widths, Numbers("widths", absl::GetFlag(FLAGS_widths)));
  COPPICE_ASSIGN_OR_RETURN(const auto draft_widths,
                           Numbers("draft_widths", absl::GetFlag(FLAGS_draft_widths)));
  COPPICE_ASSIGN_OR_RETURN(const auto depths, Numbers("depths", absl::GetFlag(FLAGS_depths)));
  COPPICE_ASSIGN_OR_RETURN(const auto drafts, Numbers("drafts", absl::GetFlag(FLAGS_drafts)));
  std::vector<sampling::DecodingKind> decodings;
  for (const std::string& name : absl::GetFlag(FLAGS_decodings)) {
    COPPICE_ASSIGN_OR_RETURN(const sampling::DecodingKind kind, sampling::ParseDecodingKind(name));
    decodings.push_back(kind);
  }
  const auto replace = [](const auto& given, auto* list) {
    if (!given.empty()) *list = given;
  };
  for (Grid& grid : experiment.grids) {
    replace(absl::GetFlag(FLAGS_methods), &grid.methods);
    replace(absl::GetFlag(FLAGS_samplings), &grid.samplings);
    replace(decodings, &grid.decodings);
    replace(widths, &grid.widths);
    replace(draft_widths, &grid.draft_widths);
    replace(depths, &grid.depths);
  }
  replace(absl::GetFlag(FLAGS_methods), &experiment.methods);
  replace(absl::GetFlag(FLAGS_samplings), &experiment.samplings);
  replace(drafts, &experiment.drafts);
  return experiment;
}

absl::Status RunGrids(const Experiment& experiment, const decoding::DecodingParams& base,
                      ModelPair* pair, LabReport* report) {
  std::vector<Cell> cells;
  for (const Grid& grid : experiment.grids) {
    COPPICE_ASSIGN_OR_RETURN(GridCells made, MakeCells(grid, base));
    cells.insert(cells.end(), made.cells.begin(), made.cells.end());
    report->skipped.insert(report->skipped.end(), made.skipped.begin(), made.skipped.end());
  }
  const RunOptions options{absl::GetFlag(FLAGS_sequences), absl::GetFlag(FLAGS_seed),
                           absl::GetFlag(FLAGS_optimum_nodes)};
  for (size_t i = 0; i < cells.size(); ++i) {
    std::fprintf(stderr, "[%zu/%zu] %s\n", i + 1, cells.size(), CellName(cells[i]).c_str());
    COPPICE_ASSIGN_OR_RETURN(CellResult result, RunCell(cells[i], options, pair));
    report->cells.push_back({cells[i], std::move(result)});
  }
  return absl::OkStatus();
}

absl::Status RunNodes(const Experiment& experiment, const decoding::DecodingParams& base,
                      ModelPair* pair, LabReport* report) {
  NodeStudyOptions options;
  options.samplings = experiment.samplings;
  options.drafts = experiment.drafts;
  options.methods = experiment.methods;
  options.sequences = absl::GetFlag(FLAGS_sequences);
  options.nodes = absl::GetFlag(FLAGS_nodes);
  options.repeats = absl::GetFlag(FLAGS_repeats);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.base = base;
  COPPICE_ASSIGN_OR_RETURN(report->nodes, RunNodeStudy(options, pair, [](const std::string& what) {
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

absl::Status Run() {
  COPPICE_RETURN_IF_ERROR(CheckFlags());
  COPPICE_ASSIGN_OR_RETURN(const Experiment experiment, ReadExperiment());
  const std::string path = absl::GetFlag(FLAGS_json);
  std::ofstream file;
  if (!path.empty()) {
    file.open(path);
    if (!file) return absl::NotFoundError(absl::StrCat("--json: cannot write ", path));
  }
  COPPICE_ASSIGN_OR_RETURN(const auto pair, MakePair());
  decoding::DecodingParams base;
  base.max_tokens = absl::GetFlag(FLAGS_tokens);
  base.draft_top_k = absl::GetFlag(FLAGS_draft_top_k);
  base.stop_ids = pair->stop_ids();
  LabReport report;
  report.experiment = std::string(experiment.name);
  report.source = pair->Describe();
  report.seed = absl::GetFlag(FLAGS_seed);
  report.sequences = absl::GetFlag(FLAGS_sequences);
  COPPICE_RETURN_IF_ERROR(experiment.single_nodes()
                              ? RunNodes(experiment, base, pair.get(), &report)
                              : RunGrids(experiment, base, pair.get(), &report));
  std::fputs(ReportTable(report).c_str(), stdout);
  if (!path.empty() && !(file << ReportJson(report) << std::flush)) {
    return absl::DataLossError(absl::StrCat("--json: writing ", path, " failed"));
  }
  return absl::OkStatus();
}

}  // namespace

int LabMain(int argc, char** argv) {
  ParseProgramFlags(kProgram, FlagUsage(), argc, argv);
  if (absl::GetFlag(FLAGS_list)) {
    PrintLists();
    return 0;
  }
  const absl::Status status = Run();
  return status.ok() ? 0 : FailProgram(kProgram, status);
}

}  // namespace coppice::lab
