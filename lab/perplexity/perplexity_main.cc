#include "lab/perplexity/perplexity_main.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "base/status.h"
#include "kernels/cpu/kernel_target.h"
#include "lab/perplexity/text_score.h"
#include "lab/perplexity/texts.h"
#include "tokenizer/tokenizer.h"

using Words = std::vector<std::string>;

namespace coppice::perplexity {
namespace {

constexpr char kProgram[] = "coppice-perplexity";
constexpr char kUsage[] =
    "Measures what types of weights and KV cost: the perplexity of a model on a text with each of "
    "them.\n\n"
    "  coppice-perplexity --model=DIR --text=FILE --types=f32,bf16,int8,int4 "
    "--limits=0,0.005,0.01,0.04";

struct PerplexityFlags {
  std::string model = "tests/models/stories260k";
  std::string text = "lab/perplexity/stories.jsonl";
  Words types = {"f32", "bf16", "int8", "int4"};
  Words kv_types;
  Words limits;
  int window = 256;
  int threads = 1;
  std::string kernels = "best";
};

absl::StatusOr<std::vector<double>> Limits(const PerplexityFlags& flags) {
  const size_t types = flags.types.size();
  std::vector<double> limits;
  for (const std::string& word : flags.limits) {
    double limit = 0;
    if (!absl::SimpleAtod(word, &limit) || !(limit >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--limits: '", word, "', expected numbers of at least 0"));
    }
    limits.push_back(limit);
  }
  if (limits.empty() || limits.size() == types) return limits;
  return absl::InvalidArgumentError(
      absl::StrCat("--limits: ", limits.size(), " limits for ", types, " types"));
}

FlagTable PerplexityFlagTable(PerplexityFlags* flags) {
  return {
      .program = kProgram,
      .about = kUsage,
      .groups =
          {{"What is scored",
            {{.name = "model", .value = &flags->model, .text = "Hugging Face folder or GGUF file"},
             {.name = "text",
              .value = &flags->text,
              .text =
                  "JSON lines with \"prompt\" and \"completion\" (.jsonl), or texts separated by "
                  "<|endoftext|>"},
             {.name = "window",
              .value = &flags->window,
              .range = {2},
              .text = "longest part of a text that is scored by itself, tokens"}}},
           {"Types of weights and KV",
            {{.name = "types",
              .value = &flags->types,
              .text = "of weights: f32, bf16, int8, int4, or auto: as the model has them; each is "
                      "compared with the first"},
             {.name = "kv_types",
              .value = &flags->kv_types,
              .own_default = "auto for each",
              .text = "of KV, one for each type of weights: auto (f32 or bf16, as the weights) or "
                      "int8"},
             {.name = "limits",
              .value = &flags->limits,
              .text = "largest relative change of the perplexity, one for each type; a larger one "
                      "fails"}}},
           {"Machine",
            {{.name = "threads", .value = &flags->threads, .range = {1}, .text = "compute threads"},
             {.name = "kernels",
              .value = &flags->kernels,
              .text = "instruction set: best, avx512_bf16, avx512, avx2 or scalar"}}}},
      .check = [flags](FlagFaults* faults) {
        if (flags->types.empty()) faults->Add("types", "none given");
        const Words known = {"auto", "f32", "bf16", "f16", "int8", "int4"};
        for (const std::string& type : flags->types) {
          if (!absl::c_linear_search(known, type))
            faults->Add("types", absl::StrCat("'", type, "', expected ", OrList(known)));
        }
        for (const std::string& type : flags->kv_types) {
          if (type != "auto" && type != "int8")
            faults->Add("kv_types", absl::StrCat("'", type, "', expected auto or int8"));
        }
        if (!flags->kv_types.empty() && flags->kv_types.size() != flags->types.size()) {
          faults->Add("kv_types", absl::StrCat(flags->kv_types.size(), " types of KV for ",
                                               flags->types.size(), " types of weights"));
        }
        faults->Add("limits", Limits(*flags).status());
        faults->Add("kernels", kernels::cpu::ChooseKernelTarget(flags->kernels));
      }};
}

// Prints a line for each type. Whether all changes are within their limits.
absl::StatusOr<bool> Measure(const PerplexityFlags& flags) {
  const Words& types = flags.types;
  COPPICE_ASSIGN_OR_RETURN(const std::vector<double> limits, Limits(flags));
  const std::string dir = flags.model;
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(dir));
  COPPICE_ASSIGN_OR_RETURN(const std::vector<Window> windows,
                           ReadWindows(flags.text, flags.window, *tokenizer));
  double first = 0;
  bool within = true;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string kv_type = flags.kv_types.empty() ? "auto" : flags.kv_types[i];
    COPPICE_ASSIGN_OR_RETURN(
        const TextScore score,
        ScoreTexts({dir, types[i], kv_type, flags.kernels, flags.threads}, windows));
    if (i == 0) first = score.perplexity();
    const double change = score.perplexity() / first - 1;
    const bool exceeded = !limits.empty() && !(std::abs(change) <= limits[i]);
    if (i == 0)
      std::printf("%s, %ld tokens, %s\n", dir.c_str(), score.tokens, score.backend.c_str());
    std::printf("%-5s weights %.2f MB, KV %s, perplexity %.4f, change %+.3f %%%s\n",
                types[i].c_str(), static_cast<double>(score.weight_bytes) / 1e6,
                score.kv_type.c_str(), score.perplexity(), 100 * change,
                exceeded ? ", beyond its limit" : "");
    within = within && !exceeded;
  }
  return within;
}

}  // namespace

int PerplexityMain(int argc, char** argv) {
  PerplexityFlags flags;
  ParseProgramFlags(PerplexityFlagTable(&flags), argc, argv);
  const absl::StatusOr<bool> within = Measure(flags);
  if (!within.ok()) return FailProgram(kProgram, within.status());
  return *within ? 0 : 1;
}

}  // namespace coppice::perplexity
