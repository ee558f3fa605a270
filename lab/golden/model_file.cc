#include "lab/golden/model_file.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "comm/communicator.h"
#include "model/model_runner.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

constexpr double kLogitTolerance = 1e-5;  // max |difference| / max |logit|, f32 against float64
constexpr double kNllTolerance = 1e-4;    // nats

// One sequence that is extended by tokens. Every pass gives the logits after each new token.
class Continuation {
 public:
  explicit Continuation(model::ModelRunner* runner) : runner_(runner) {
    int cached = 0;
    kv_ = runner_->blocks()->Open({}, &cached);
  }
  ~Continuation() { runner_->blocks()->Close(kv_); }

  std::vector<std::vector<float>> Feed(absl::Span<const TokenId> tokens) {
    model::StepBuilder step = runner_->NewStep();
    for (const TokenId token : tokens) {
      const auto node = runner_->blocks()->AddNode(kv_, last_, token);
      COPPICE_CHECK_MSG(node.ok(), node.status().ToString());
      last_ = *node;
      step.AddNodeRow(kv_, last_, token, RowNeed());
    }
    const absl::Status submitted = runner_->Submit(std::move(step));
    COPPICE_CHECK_MSG(submitted.ok(), submitted.ToString());
    const auto read = runner_->Wait();
    COPPICE_CHECK_MSG(read.ok(), read.status().ToString());
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const absl::Span<const float> row = (*read)->Whole(static_cast<int>(i));
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }

 private:
  model::ModelRunner* runner_;
  model::SequenceHandle kv_ = -1;
  model::KvNode last_ = model::kPrefixEnd;
};

void CheckLastLogits(const std::vector<float>& got, const std::vector<double>& want,
                     CaseCheck* check) {
  check->Equal("size of last_logits", got.size(), want.size());
  if (got.size() != want.size()) return;
  double error = 0, largest = 0;
  for (size_t v = 0; v < want.size(); ++v) {
    error = std::max(error, std::abs(got[v] - want[v]));
    largest = std::max(largest, std::abs(want[v]));
  }
  check->Near("last_logits, relative error", error / largest, 0, kLogitTolerance);
}

double MeanNll(const std::vector<std::vector<float>>& rows, const std::vector<TokenId>& ids) {
  double nll = 0;
  for (size_t t = 1; t < ids.size(); ++t) {
    double sum = 0;
    for (const float logit : rows[t - 1]) sum += sampling::Exp(logit);
    nll += sampling::Log(sum) - rows[t - 1][ids[t]];
  }
  return nll / static_cast<double>(ids.size() - 1);
}

// Compares token for token, up to a position where f32 cannot tell the two best tokens apart.
void CheckGreedy(std::vector<float> row, const std::vector<TokenId>& want, Continuation* sequence,
                 CaseCheck* check) {
  for (size_t i = 0; i < want.size(); ++i) {
    const auto best = std::max_element(row.begin(), row.end());
    const auto token = static_cast<TokenId>(best - row.begin());
    const float top = *best;
    *best = -std::numeric_limits<float>::infinity();
    const float margin = top - *std::max_element(row.begin(), row.end());
    if (margin < kLogitTolerance * std::abs(top)) {
      check->True("greedy_next_40 told apart for 30 tokens", i >= 30);
      return;
    }
    check->Equal(absl::StrCat("greedy_next_40[", i, "]"), token, want[i]);
    row = sequence->Feed({want[i]})[0];
  }
}

void RunCase(const Json& item, model::ModelRunner* runner, CaseCheck* check) {
  const std::vector<TokenId> ids = item.at("ids");
  Continuation sequence(runner);
  const std::vector<std::vector<float>> rows = sequence.Feed(ids);
  CheckLastLogits(rows.back(), item.at("last_logits"), check);
  check->Near("mean_nll", MeanNll(rows, ids), item.at("mean_nll").get<double>(), kNllTolerance);
  CheckGreedy(rows.back(), item.at("greedy_next_40"), &sequence, check);
}

}  // namespace

bool IsModelFile(const Json& json) {
  return json.contains("model") && json["model"].is_string() && json.contains("cases") &&
         json["cases"].is_array();
}

Tally RunModelFile(const Json& json, const std::string& path) {
  const std::string file = std::filesystem::path(path).filename();
  model::ModelRunnerOptions options;
  options.dir = (std::filesystem::absolute(path).parent_path().parent_path() / "models" /
                 json.at("model").get<std::string>())
                    .string();
  options.dtype = "f32";
  options.kv_bytes = int64_t{64} << 20;
  Tally tally;
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = model::ModelRunner::Load(options, single.get());
  for (const Json& item : json["cases"]) {
    CaseCheck check;
    std::string error;
    if (!runner.ok()) {
      error = runner.status().ToString();
    } else {
      try {
        RunCase(item, runner->get(), &check);
      } catch (const std::exception& e) {
        error = absl::StrCat("malformed case: ", e.what());
      }
    }
    const bool named = item.is_object() && item.contains("text") && item["text"].is_string();
    Count(file, named ? item["text"].get<std::string>() : "unnamed", error, check, &tally);
  }
  return tally;
}

}  // namespace coppice::golden
