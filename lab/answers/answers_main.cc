#include "lab/answers/answers_main.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
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

ABSL_FLAG(std::string, target, "tests/models/text2sql-target", "Hugging Face folder");
ABSL_FLAG(std::string, draft, "tests/models/text2sql-draft", "Hugging Face folder");
ABSL_FLAG(std::string, prompts, "lab/experiments/prompts.jsonl",
          "recording: JSON lines with \"prompt\", a text");
ABSL_FLAG(int, requests, 2000, "recording: how many");
ABSL_FLAG(uint64_t, seed, 1, "recording: which requests");
ABSL_FLAG(std::string, out, "", "file that receives the recording");
ABSL_FLAG(std::string, compare, "", "recording whose requests are run again and compared");
ABSL_FLAG(int, only, -1, "comparing: the number of the one request to run; prints both answers");
ABSL_FLAG(double, score_tolerance, 0,
          "comparing: by how much scores may differ, nats; 0 = every bit counts");
ABSL_FLAG(bool, candidate_lists, false,
          "read target and draft rows as candidate lists where the method can, as the ranks of a "
          "tensor-parallel target send them");
ABSL_FLAG(int, threads, 1, "compute threads");
ABSL_FLAG(std::string, kernels, "best",
          "instruction set: best, AVX-512 BF16, AVX-512, AVX2 or scalar");

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

absl::StatusOr<std::unique_ptr<lab::LocalReplica>> LoadReplica() {
  lab::LocalReplicaOptions options;
  options.always_list = absl::GetFlag(FLAGS_candidate_lists);
  options.target_dir = absl::GetFlag(FLAGS_target);
  options.draft_dir = absl::GetFlag(FLAGS_draft);
  options.kv_bytes = int64_t{64} << 20;
  options.threads = absl::GetFlag(FLAGS_threads);
  return lab::LocalReplica::Load(options);
}

absl::StatusOr<RequestSource> LoadSource(int vocab_size) {
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer,
                           tokenizer::Tokenizer::Load(absl::GetFlag(FLAGS_target)));
  RequestSource source;
  source.seed = absl::GetFlag(FLAGS_seed);
  source.vocab_size = vocab_size;
  source.stop_ids = tokenizer->eos_ids();
  const std::string path = absl::GetFlag(FLAGS_prompts);
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

absl::Status Record(const std::string& path) {
  const int requests = absl::GetFlag(FLAGS_requests);
  if (requests < 1) return absl::InvalidArgumentError("--requests: expected at least 1");
  COPPICE_ASSIGN_OR_RETURN(const auto replica, LoadReplica());
  COPPICE_ASSIGN_OR_RETURN(const RequestSource source, LoadSource(replica->vocab_size()));
  Recording recording;
  COPPICE_ASSIGN_OR_RETURN(recording.target, FolderFingerprint(absl::GetFlag(FLAGS_target)));
  COPPICE_ASSIGN_OR_RETURN(recording.draft, FolderFingerprint(absl::GetFlag(FLAGS_draft)));
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
absl::StatusOr<int> Compare(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const Recording recording, ReadRecording(path));
  const std::string target = absl::GetFlag(FLAGS_target), draft = absl::GetFlag(FLAGS_draft);
  COPPICE_RETURN_IF_ERROR(CheckFolder("target", target, recording.target));
  COPPICE_RETURN_IF_ERROR(CheckFolder("draft", draft, recording.draft));
  COPPICE_ASSIGN_OR_RETURN(const auto replica, LoadReplica());
  const int only = absl::GetFlag(FLAGS_only);
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
    const Difference difference =
        FirstDifference(line.answer, now.answer, absl::GetFlag(FLAGS_score_tolerance));
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

absl::StatusOr<int> RunProgram() {
  const std::string out = absl::GetFlag(FLAGS_out), compare = absl::GetFlag(FLAGS_compare);
  if (out.empty() == compare.empty()) {
    return absl::InvalidArgumentError("expected either --out or --compare");
  }
  COPPICE_RETURN_IF_ERROR(kernels::cpu::ChooseKernelTarget(absl::GetFlag(FLAGS_kernels)));
  if (!compare.empty()) return Compare(compare);
  COPPICE_RETURN_IF_ERROR(Record(out));
  return 0;
}

}  // namespace

int AnswersMain(int argc, char** argv) {
  const ProgramUsage usage = {
      kUsage,
      {{"Recording", {"out", "requests", "seed", "prompts"}},
       {"Comparing", {"compare", "only", "score_tolerance"}},
       {"Models", {"target", "draft", "candidate_lists", "threads", "kernels"}}}};
  ParseProgramFlags(kProgram, usage, argc, argv);
  const absl::StatusOr<int> differing = RunProgram();
  if (differing.ok()) return *differing > 0 ? 1 : 0;
  FailProgram(kProgram, differing.status());
  return 2;
}

}  // namespace coppice::answers
