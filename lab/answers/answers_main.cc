#include "lab/answers/answers_main.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/program.h"
#include "base/status.h"
#include "kernels/cpu/kernel_target.h"
#include "lab/answers/answer.h"
#include "lab/answers/answer_json.h"
#include "lab/answers/recording.h"
#include "lab/answers/request.h"
#include "lab/experiments/local_replica.h"
#include "tokenizer/tokenizer.h"

namespace coppice::answers {
namespace {

using Json = nlohmann::json;

constexpr char kProgram[] = "coppice-answers";
constexpr char kUsage[] =
    "Answers to requests over all methods and parameters, tokens and score bits: records them, and "
    "compares those of this build with a recording.\n\n"
    "  coppice-answers --requests=2000 --seed=1 --out=FILE.jsonl\n"
    "  coppice-answers --compare=FILE.jsonl [--only=17] [--threads=2] [--kernels=AVX2]\n\n"
    "Exit status 1 when an answer differs, 2 when nothing could be compared.";

struct AnswersFlags {
  std::string target = "tests/models/stories260k", draft = "tests/models/stories260k-draft";
  std::string prompts = "lab/experiments/prompts.jsonl";
  int requests = 2000;
  uint64_t seed = 1;
  std::string out, compare;
  int only = -1;  // request to run; -1: all
  double score_tolerance = 0;
  bool candidate_lists = false;
  int threads = 1;
  std::string kernels = "best";
};

FlagTable AnswersFlagTable(AnswersFlags* flags) {
  return {
      .program = kProgram,
      .about = kUsage,
      .groups =
          {{"Recording",
            {{.name = "out", .value = &flags->out, .text = "file that receives the recording"},
             {.name = "requests", .value = &flags->requests, .range = {1}, .text = "how many"},
             {.name = "seed", .value = &flags->seed, .text = "which requests"},
             {.name = "prompts",
              .value = &flags->prompts,
              .text = "JSON lines with \"prompt\", a text"}}},
           {"Comparing",
            {{.name = "compare",
              .value = &flags->compare,
              .text = "recording whose requests are run again and compared"},
             {.name = "only",
              .value = &flags->only,
              .text = "the number of the one request to run; prints both answers; -1 = all"},
             {.name = "score_tolerance",
              .value = &flags->score_tolerance,
              .text = "by how much scores may differ, nats; 0 = every bit counts"}}},
           {"Models",
            {{.name = "target",
              .value = &flags->target,
              .text = "Hugging Face folder or GGUF file"},
             {.name = "draft", .value = &flags->draft, .text = "Hugging Face folder or GGUF file"},
             {.name = "candidate_lists",
              .value = &flags->candidate_lists,
              .text = "read target and draft rows as candidate lists where the method can, as the "
                      "ranks of a tensor-parallel target send them"},
             {.name = "threads", .value = &flags->threads, .text = "compute threads"},
             {.name = "kernels",
              .value = &flags->kernels,
              .text = "instruction set: best, AVX-512 BF16, AVX-512, AVX2 or scalar"}}}},
      .check = [flags](FlagFaults* faults) {
        if (flags->out.empty() == flags->compare.empty())
          faults->Add(absl::InvalidArgumentError("expected either --out or --compare"));
        faults->Add("kernels", kernels::cpu::ChooseKernelTarget(flags->kernels));
      }};
}

absl::StatusOr<std::unique_ptr<lab::LocalReplica>> LoadReplica(const AnswersFlags& flags) {
  lab::LocalReplicaOptions options;
  options.always_list = flags.candidate_lists;
  options.target_dir = flags.target;
  options.draft_dir = flags.draft;
  options.kv_bytes = int64_t{64} << 20;
  options.threads = flags.threads;
  return lab::LocalReplica::Load(options);
}

absl::StatusOr<RequestSource> LoadSource(const AnswersFlags& flags, int vocab_size) {
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(flags.target));
  RequestSource source;
  source.seed = flags.seed;
  source.vocab_size = vocab_size;
  source.stop_ids = tokenizer->eos_ids();
  const std::string path = flags.prompts;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": expected objects with \"prompt\", a text, got ", line));
    }
    source.prompts.push_back(
        tokenizer->Encode(json["prompt"].get<std::string>(), /*add_special_tokens=*/true));
  }
  if (!source.prompts.empty()) return source;
  return absl::NotFoundError(absl::StrCat("--prompts: ", path, " cannot be read or is empty"));
}

absl::StatusOr<RecordedAnswer> Run(const AnswerRequest& request, lab::LocalReplica* replica) {
  const auto answer = RunRequest(request, replica);
  if (!answer.ok()) {
    return absl::Status(answer.status().code(), absl::StrCat("request ", RequestName(request), ": ",
                                                             answer.status().message()));
  }
  return RecordedAnswer{request, AnswerToJson(*answer), std::string(answer->refused.message())};
}

// Prints for each method its requests, how many were refused, and statistics of the rounds.
void PrintCounts(const std::vector<RecordedAnswer>& answers) {
  struct Count {
    int answered = 0, refused = 0, drafted = 0, rounds = 0, layers = 0;
  };
  std::map<std::string, Count> methods;
  for (const RecordedAnswer& line : answers) {
    for (Count* count : {&methods[line.request.method], &methods["~all"]}) {
      ++(line.answer.contains("refused") ? count->refused : count->answered);
      if (line.answer.contains("refused")) continue;
      count->drafted += line.request.forest_width > 0;
      count->rounds += static_cast<int>(line.answer["layers"].size());
      for (const Json& layers : line.answer["layers"]) count->layers += layers.get<int>();
    }
  }
  absl::PrintF("%-24s answered refused drafted  rounds  layers\n", "method");
  for (const auto& [method, count] : methods) {
    absl::PrintF("%-24s %8d %7d %7d %7d %7d\n", method == "~all" ? "all" : method, count.answered,
                 count.refused, count.drafted, count.rounds, count.layers);
  }
}

absl::Status Record(const AnswersFlags& flags, const std::string& path) {
  const int requests = flags.requests;
  COPPICE_ASSIGN_OR_RETURN(const auto replica, LoadReplica(flags));
  COPPICE_ASSIGN_OR_RETURN(const RequestSource source, LoadSource(flags, replica->vocab_size()));
  Recording recording;
  COPPICE_ASSIGN_OR_RETURN(recording.target, FolderFingerprint(flags.target));
  COPPICE_ASSIGN_OR_RETURN(recording.draft, FolderFingerprint(flags.draft));
  recording.kernels = kernels::cpu::KernelTargetName();
  for (int i = 0; i < requests; ++i) {
    COPPICE_ASSIGN_OR_RETURN(RecordedAnswer line, Run(MakeRequest(source, i), replica.get()));
    recording.answers.push_back(std::move(line));
  }
  PrintCounts(recording.answers);
  return WriteRecording(recording, path);
}

absl::Status CheckFolder(const char* flag, const std::string& dir, const std::string& recorded) {
  COPPICE_ASSIGN_OR_RETURN(const std::string found, FolderFingerprint(dir));
  if (found == recorded) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", dir, " has the fingerprint ",
                                                 found, ", the recording was made with ",
                                                 recorded));
}

// How many answers differ from the recorded ones.
absl::StatusOr<int> Compare(const AnswersFlags& flags, const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const Recording recording, ReadRecording(path));
  const std::string target = flags.target, draft = flags.draft;
  COPPICE_RETURN_IF_ERROR(CheckFolder("target", target, recording.target));
  COPPICE_RETURN_IF_ERROR(CheckFolder("draft", draft, recording.draft));
  COPPICE_ASSIGN_OR_RETURN(const auto replica, LoadReplica(flags));
  const int only = flags.only;
  int compared = 0, differing = 0;
  std::map<std::string, int> fields, methods;
  for (const RecordedAnswer& line : recording.answers) {
    if (only >= 0 && line.request.number != only) continue;
    COPPICE_ASSIGN_OR_RETURN(const RecordedAnswer now, Run(line.request, replica.get()));
    ++compared;
    if (only >= 0) {
      absl::PrintF("request  %s\nrecorded %s\nnow      %s\n", RequestToJson(line.request).dump(),
                   line.answer.dump(), now.answer.dump());
    }
    const Difference difference = FirstDifference(line.answer, now.answer, flags.score_tolerance);
    if (difference.field.empty()) continue;
    ++fields[difference.field];
    ++methods[line.request.method];
    if (++differing > 1) continue;
    absl::PrintF("request %s: %s%s\n", RequestName(line.request), difference.text,
                 now.refusal.empty() ? "" : absl::StrCat(" (", now.refusal, ")"));
  }
  if (compared == 0) {
    return absl::NotFoundError(absl::StrCat("--only: ", path, " has no request ", only));
  }
  absl::PrintF("%d of %d answers differ; recorded on %s, compared on %s\n", differing, compared,
               recording.kernels, kernels::cpu::KernelTargetName());
  for (const auto& [field, count] : fields) absl::PrintF("  first in %s: %d\n", field, count);
  for (const auto& [method, count] : methods) absl::PrintF("  of method %s: %d\n", method, count);
  return differing;
}

absl::StatusOr<int> RunProgram(const AnswersFlags& flags) {
  if (!flags.compare.empty()) return Compare(flags, flags.compare);
  COPPICE_RETURN_IF_ERROR(Record(flags, flags.out));
  return 0;
}

}  // namespace

int AnswersMain(int argc, char** argv) {
  AnswersFlags flags;
  ParseProgramFlags(AnswersFlagTable(&flags), argc, argv);
  const absl::StatusOr<int> differing = RunProgram(flags);
  if (differing.ok()) return *differing > 0 ? 1 : 0;
  FailProgram(kProgram, differing.status());
  return 2;
}

}  // namespace coppice::answers
