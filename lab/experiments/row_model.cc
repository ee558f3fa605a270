#include "lab/experiments/row_model.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "lab/exact/hash_lm.h"
#include "sampling/deterministic_math.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

constexpr int kEndless = std::numeric_limits<int>::max();  // prompts of a model given by a function

// Slots of the uniforms of one row.
enum Noise : uint32_t { kTargetNoise = 0, kDraftNoise = 1 };

uint64_t PromptHash(int prompt, uint64_t hash) {
  return sampling::Finalize(hash + sampling::kRootHash * (static_cast<uint64_t>(prompt) + 1));
}

class RandomTables : public RowModel {
 public:
  explicit RandomTables(const TableOptions& options) : options_(options) {}
  int vocab_size() const override { return options_.vocab_size; }
  int num_prompts() const override { return kEndless; }

  std::vector<float> Target(int prompt, uint64_t hash) const override {
    const std::vector<double> noise = Logistic(PromptHash(prompt, hash), kTargetNoise);
    std::vector<float> logits(noise.size());
    if (options_.zipf_exponent <= 0) {
      for (size_t v = 0; v < noise.size(); ++v) {
        logits[v] = static_cast<float>(options_.spread * noise[v]);
      }
      return logits;
    }
    std::vector<int> order(noise.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return noise[a] < noise[b]; });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      logits[order[rank]] = static_cast<float>(-options_.zipf_exponent * sampling::Log(rank + 1.0));
    }
    return logits;
  }

  std::vector<float> Draft(int prompt, uint64_t hash) const override {
    std::vector<float> logits = Target(prompt, hash);
    const std::vector<double> noise = Logistic(PromptHash(prompt, hash), kDraftNoise);
    for (size_t v = 0; v < logits.size(); ++v) {
      logits[v] += static_cast<float>(options_.noise * noise[v]);
    }
    return logits;
  }

  std::vector<std::pair<std::string, std::string>> Describe() const override {
    const bool zipf = options_.zipf_exponent > 0;
    return {{"rows", zipf ? "zipf" : "random"},
            {"vocabulary", absl::StrCat(options_.vocab_size)},
            {zipf ? "exponent" : "spread",
             absl::StrCat(zipf ? options_.zipf_exponent : options_.spread)},
            {"draft_noise", absl::StrCat(options_.noise)},
            {"table_seed", absl::StrCat(options_.seed)}};
  }

 private:
  std::vector<double> Logistic(uint64_t hash, Noise slot) const {
    std::vector<double> out(options_.vocab_size);
    for (int v = 0; v < options_.vocab_size; ++v) {
      const double u = sampling::Uniform(options_.seed, sampling::Domain::kToken, hash, slot, v);
      out[v] = sampling::Log(u) - sampling::Log1p(-u);
    }
    return out;
  }
  TableOptions options_;
};

class HashLmModel : public RowModel {
 public:
  explicit HashLmModel(const HashLmOptions& options)
      : lm_{options.vocab_size, options.salt, options.power, options.noise} {}
  int vocab_size() const override { return lm_.vocab_size; }
  int num_prompts() const override { return kEndless; }
  std::vector<float> Target(int prompt, uint64_t hash) const override {
    return Narrow(lm_.TargetLogProbs(PromptHash(prompt, hash)));
  }
  std::vector<float> Draft(int prompt, uint64_t hash) const override {
    return Narrow(lm_.DraftLogProbs(PromptHash(prompt, hash)));
  }
  std::vector<std::pair<std::string, std::string>> Describe() const override {
    return {{"rows", "hashlm"},
            {"vocabulary", absl::StrCat(lm_.vocab_size)},
            {"salt", absl::StrCat(lm_.salt)},
            {"power", absl::StrCat(lm_.power)},
            {"noise", absl::StrCat(lm_.noise)}};
  }

 private:
  static std::vector<float> Narrow(const std::vector<double>& row) {
    return std::vector<float>(row.begin(), row.end());
  }
  test::HashLm lm_;
};

class RecordedRows : public RowModel {
 public:
  explicit RecordedRows(PathRows rows) : rows_(std::move(rows)) {}
  int vocab_size() const override { return rows_.vocab_size; }
  int num_prompts() const override { return rows_.positions(); }
  std::vector<float> Target(int prompt, uint64_t) const override {
    const auto row = rows_.TargetRow(prompt);
    return std::vector<float>(row.begin(), row.end());
  }
  std::vector<float> Draft(int prompt, uint64_t) const override {
    const auto row = rows_.DraftRow(prompt);
    return std::vector<float>(row.begin(), row.end());
  }
  std::vector<std::pair<std::string, std::string>> Describe() const override {
    return {{"rows", "recorded"}, {"positions", absl::StrCat(rows_.positions())}};
  }

 private:
  PathRows rows_;
};

}  // namespace

std::unique_ptr<RowModel> MakeRandomTables(const TableOptions& options) {
  return std::make_unique<RandomTables>(options);
}
std::unique_ptr<RowModel> MakeHashLmRows(const HashLmOptions& options) {
  return std::make_unique<HashLmModel>(options);
}
std::unique_ptr<RowModel> MakeRecordedRows(PathRows rows) {
  return std::make_unique<RecordedRows>(std::move(rows));
}

}  // namespace coppice::lab
