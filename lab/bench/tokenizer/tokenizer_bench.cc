// How long a tokenizer takes to load and to encode a page of docs/. Its folder is that of
// COPPICE_BENCH_TOKENIZER; default: a synthetic vocabulary as large as Gemma's, with 619,295 merges
// and without a cut between words, so that a text is one word.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace coppice::bench {
namespace {

constexpr size_t kTokens = 262144;
constexpr size_t kLongest = 16;  // bytes

// A vocabulary: bytes, characters, and random tokens, each with every way to merge it.
class Synthetic {
 public:
  std::string TokenizerJson() {
    for (const char* special : {"<pad>", "<eos>", "<bos>", "<unk>"}) Add(special);
    for (int byte = 0; byte < 256; ++byte) Add(absl::StrFormat("<0x%02X>", byte));
    for (const char c : std::string(kLetters)) Add(std::string(1, c));
    Add("\xE2\x96\x81");
    parts_.assign(tokens_.begin() + 260, tokens_.end());
    AddWords();
    while (tokens_.size() < kTokens) AddMerged(Part(), Part());
    std::string vocab, merges;
    for (size_t id = 0; id < tokens_.size(); ++id)
      absl::StrAppend(&vocab, id > 0 ? ",\n" : "", "\"", tokens_[id], "\": ", id);
    for (size_t i = 0; i < merges_.size(); ++i) {
      absl::StrAppend(&merges, i > 0 ? ",\n" : "", "[\n\"", merges_[i].first, "\",\n\"",
                      merges_[i].second, "\"\n]");
    }
    return absl::StrCat(R"({"added_tokens": [],
      "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
      "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                        "behavior": "MergedWithPrevious", "invert": false},
      "decoder": {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                "vocab": {)",
                        vocab, "}, \"merges\": [", merges, "]}}");
  }

 private:
  static constexpr char kLetters[] = "etaoinshrdlucmfwypvbgkqjxz";
  static constexpr size_t kFirstLetters = 6;

  bool Add(const std::string& token) {
    if (!ids_.emplace(token, tokens_.size()).second) return false;
    tokens_.push_back(token);
    return true;
  }
  // Parts that came early are taken often, so that merges share them as in a trained vocabulary.
  const std::string& Part() {
    const double share = std::uniform_real_distribution<>(0, 1)(random_);
    return parts_[static_cast<size_t>(share * share * share * static_cast<double>(parts_.size()))];
  }
  // All words of up to six of the first letters, which can be merged in every way.
  void AddWords() {
    for (size_t begin = 0, end = kFirstLetters, length = 2; length <= 6; ++length) {
      const std::vector<std::string> shorter(parts_.begin() + begin, parts_.begin() + end);
      begin = parts_.size();
      for (const std::string& word : shorter) {
        for (size_t i = 0; i < kFirstLetters; ++i) AddMerged(word, std::string(1, kLetters[i]));
      }
      end = parts_.size();
    }
  }
  void AddMerged(const std::string& left, const std::string& right) {
    const std::string both = left + right;
    if (both.size() > kLongest || !Add(both)) return;
    parts_.push_back(both);
    merges_.emplace_back(left, right);
    for (size_t cut = 1; cut < both.size(); ++cut) {
      const std::string head = both.substr(0, cut), tail = both.substr(cut);
      if (head != left && ids_.contains(head) && ids_.contains(tail))
        merges_.emplace_back(head, tail);
    }
  }

  std::mt19937 random_{1};
  std::vector<std::string> tokens_, parts_;
  absl::flat_hash_map<std::string, size_t> ids_;
  std::vector<std::pair<std::string, std::string>> merges_;
};

const std::string& Folder() {
  static const std::string* const folder = [] {
    if (const char* given = std::getenv("COPPICE_BENCH_TOKENIZER")) return new std::string(given);
    const auto made = std::filesystem::temp_directory_path() /
                      ("coppice-bench-tokenizer-" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    std::ofstream(made / "tokenizer.json") << Synthetic().TokenizerJson();
    static const std::string path = made.string();
    std::atexit([] { std::filesystem::remove_all(path); });
    return new std::string(path);
  }();
  return *folder;
}

std::unique_ptr<tokenizer::Tokenizer> Loaded() {
  auto tokenizer = tokenizer::Tokenizer::Load(Folder());
  COPPICE_CHECK_MSG(tokenizer.ok(), tokenizer.status().ToString());
  return *std::move(tokenizer);
}

void BM_Load(benchmark::State& state) {
  Folder();
  for (auto _ : state) benchmark::DoNotOptimize(Loaded());
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

void BM_Encode(benchmark::State& state) {
  static const auto* const tokenizer = new std::unique_ptr<tokenizer::Tokenizer>(Loaded());
  std::ifstream file("docs/decoding.md");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  COPPICE_CHECK_MSG(!text.empty(), "docs/decoding.md: run it in the root of the tree");
  while (text.size() < static_cast<size_t>(state.range(0))) text += text;
  text.resize(static_cast<size_t>(state.range(0)));
  size_t tokens = 0;
  for (auto _ : state) tokens = (*tokenizer)->Encode(text, false).size();
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(BM_Encode)->Arg(1 << 10)->Arg(1 << 15)->Arg(1 << 20);

}  // namespace
}  // namespace coppice::bench
