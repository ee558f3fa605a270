#include "lab/experiments/replica_pair.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "lab/experiments/local_replica.h"
#include "tokenizer/tokenizer.h"

namespace coppice::lab {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::vector<TokenId>> ReadPrompt(const std::string& line, int vocab_size,
                                                const tokenizer::Tokenizer& tokenizer) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("prompt")) {
    return absl::InvalidArgumentError("expected an object with \"prompt\"");
  }
  const Json& prompt = json["prompt"];
  std::vector<TokenId> tokens;
  if (prompt.is_string()) {
    tokens = tokenizer.Encode(prompt.get<std::string>(), /*add_special_tokens=*/true);
  } else if (prompt.is_array()) {
    for (const Json& token : prompt) {
      if (!token.is_number_integer() || token.get<int64_t>() < 0 ||
          token.get<int64_t>() >= vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("prompt: expected token ids below ", vocab_size));
      }
      tokens.push_back(token.get<TokenId>());
    }
  } else {
    return absl::InvalidArgumentError("prompt: expected a text or a list of token ids");
  }
  if (tokens.empty()) return absl::InvalidArgumentError("prompt: no token");
  return tokens;
}

class ReplicaSequence : public PairSequence {
 public:
  explicit ReplicaSequence(LocalReplica* replica) : replica_(replica) {}
  ~ReplicaSequence() override { replica_->Close(); }
  const decoding::BeamDecoder& decoder() const override { return replica_->decoder(); }
  absl::StatusOr<decoding::DraftForest> Draft(int width, int depth) override {
    return replica_->Draft(width, depth);
  }
  absl::StatusOr<decoding::Verdict> Round(decoding::DraftForest forest) override {
    return replica_->Round(std::move(forest));
  }

 private:
  LocalReplica* replica_;
};

class ReplicaPair : public ModelPair {
 public:
  ReplicaPair(ReplicaPairOptions options, std::unique_ptr<LocalReplica> replica,
              std::unique_ptr<tokenizer::Tokenizer> tokenizer)
      : options_(std::move(options)),
        replica_(std::move(replica)),
        tokenizer_(std::move(tokenizer)) {}

  absl::Status ReadPrompts() {
    std::ifstream file(options_.prompts);
    if (!file) return absl::NotFoundError(absl::StrCat(options_.prompts, ": cannot be read"));
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      if (line.empty()) continue;
      auto tokens = ReadPrompt(line, replica_->vocab_size(), *tokenizer_);
      const auto at = absl::StrCat(options_.prompts, ":", number, ": ");
      if (!tokens.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(at, tokens.status().message()));
      }
      if (static_cast<int>(tokens->size()) + options_.max_tokens > replica_->max_positions()) {
        return absl::InvalidArgumentError(
            absl::StrCat(at, tokens->size(), " tokens and ", options_.max_tokens,
                         " to generate exceed the models' ", replica_->max_positions()));
      }
      prompts_.push_back(*std::move(tokens));
    }
    if (prompts_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(options_.prompts, ": no prompts"));
    }
    return absl::OkStatus();
  }

  std::vector<std::pair<std::string, std::string>> Describe() const override {
    return {{"rows", "pair"},
            {"target", options_.target_dir},
            {"draft", options_.draft_dir},
            {"prompts", options_.prompts}};
  }
  int vocab_size() const override { return replica_->vocab_size(); }
  std::vector<TokenId> stop_ids() const override {
    return options_.ignore_eos ? std::vector<TokenId>() : tokenizer_->eos_ids();
  }
  int num_prompts() const override { return static_cast<int>(prompts_.size()); }

  absl::StatusOr<std::unique_ptr<PairSequence>> Start(
      int prompt, const decoding::DecodingParams& params) override {
    auto sequence = std::make_unique<ReplicaSequence>(replica_.get());
    COPPICE_RETURN_IF_ERROR(replica_->Open(prompts_[prompt], params, !params.plain));
    return sequence;
  }

  absl::StatusOr<PathRows> RowsAlong(int prompt, absl::Span<const TokenId> tokens) override {
    PathRows rows;
    rows.vocab_size = vocab_size();
    const auto before_last = tokens.subspan(0, tokens.size() - 1);
    COPPICE_ASSIGN_OR_RETURN(rows.target, replica_->TargetLogits(prompts_[prompt], before_last));
    COPPICE_ASSIGN_OR_RETURN(rows.draft, replica_->DraftLogits(prompts_[prompt], before_last));
    return rows;
  }

 private:
  ReplicaPairOptions options_;
  std::unique_ptr<LocalReplica> replica_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::vector<TokenId>> prompts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelPair>> LoadReplicaPair(const ReplicaPairOptions& options) {
  LocalReplicaOptions replica;
  replica.target_dir = options.target_dir;
  replica.draft_dir = options.draft_dir;
  replica.kv_bytes = options.kv_bytes;
  replica.threads = options.threads;
  COPPICE_ASSIGN_OR_RETURN(auto loaded, LocalReplica::Load(replica));
  COPPICE_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::Load(options.target_dir));
  auto pair = std::make_unique<ReplicaPair>(options, std::move(loaded), std::move(tokenizer));
  COPPICE_RETURN_IF_ERROR(pair->ReadPrompts());
  return pair;
}

}  // namespace coppice::lab
