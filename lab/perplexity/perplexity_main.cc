#include "lab/perplexity/perplexity_main.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "base/status.h"
#include "lab/perplexity/text_score.h"
#include "lab/perplexity/texts.h"
#include "tokenizer/tokenizer.h"

using Words = std::vector<std::string>;

ABSL_FLAG(std::string, model, "tests/models/text2sql-target", "Hugging Face folder");
ABSL_FLAG(std::string, text, "lab/perplexity/wikisql_dev.jsonl",
          "JSON lines with \"prompt\" and \"completion\" (.jsonl), or texts separated by "
          "<|endoftext|>");
ABSL_FLAG(Words, types, Words({"f32", "bf16", "int8", "int4"}),
          "of weights: f32, bf16, int8, int4; each is compared with the first");
ABSL_FLAG(Words, limits, {},
          "largest relative change of the perplexity, one for each type; a larger one fails");
ABSL_FLAG(int, window, 256, "longest part of a text that is scored by itself, tokens");
ABSL_FLAG(int, threads, 1, "compute threads");
ABSL_FLAG(std::string, kernels, "best",
          "instruction set: best, avx512_bf16, avx512, avx2 or scalar");

namespace coppice::perplexity {
namespace {

constexpr char kProgram[] = "coppice-perplexity";
constexpr char kUsage[] =
    "Measures what types of weights cost: the perplexity of a model on a text with each of "
    "them.\n\n"
    "  coppice-perplexity --model=DIR --text=FILE --types=f32,bf16,int8,int4 "
    "--limits=0,0.005,0.01,0.04";

ProgramUsage FlagUsage() {
  return {kUsage,
          {{"What is scored", {"model", "text", "window"}},
           {"Types of weights", {"types", "limits"}},
           {"Machine", {"threads", "kernels"}}}};
}

absl::StatusOr<std::vector<double>> Limits(size_t types) {
  std::vector<double> limits;
  for (const std::string& word : absl::GetFlag(FLAGS_limits)) {
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

// Prints a line for each type. Whether all changes are within their limits.
absl::StatusOr<bool> Measure() {
  const Words types = absl::GetFlag(FLAGS_types);
  if (absl::GetFlag(FLAGS_window) < 2)
    return absl::InvalidArgumentError("--window: expected at least 2");
  if (absl::GetFlag(FLAGS_threads) < 1)
    return absl::InvalidArgumentError("--threads: expected at least 1");
  COPPICE_ASSIGN_OR_RETURN(const std::vector<double> limits, Limits(types.size()));
  const std::string dir = absl::GetFlag(FLAGS_model);
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(dir));
  COPPICE_ASSIGN_OR_RETURN(
      const std::vector<Window> windows,
      ReadWindows(absl::GetFlag(FLAGS_text), absl::GetFlag(FLAGS_window), *tokenizer));
  double first = 0;
  bool within = true;
  for (size_t i = 0; i < types.size(); ++i) {
    COPPICE_ASSIGN_OR_RETURN(
        const TextScore score,
        ScoreTexts({dir, types[i], absl::GetFlag(FLAGS_kernels), absl::GetFlag(FLAGS_threads)},
                   windows));
    if (i == 0) first = score.perplexity();
    const double change = score.perplexity() / first - 1;
    const bool exceeded = !limits.empty() && !(std::abs(change) <= limits[i]);
    if (i == 0)
      std::printf("%s, %ld tokens, %s\n", dir.c_str(), score.tokens, score.backend.c_str());
    std::printf("%-5s weights %.2f MB, perplexity %.4f, change %+.3f %%%s\n", types[i].c_str(),
                static_cast<double>(score.weight_bytes) / 1e6, score.perplexity(), 100 * change,
                exceeded ? ", beyond its limit" : "");
    within = within && !exceeded;
  }
  return within;
}

}  // namespace

int PerplexityMain(int argc, char** argv) {
  ParseProgramFlags(kProgram, FlagUsage(), argc, argv);
  const absl::StatusOr<bool> within = Measure();
  if (!within.ok()) return FailProgram(kProgram, within.status());
  return *within ? 0 : 1;
}

}  // namespace coppice::perplexity
