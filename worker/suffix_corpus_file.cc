#include "worker/suffix_corpus_file.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace coppice::worker {
namespace {

using decoding::SuffixCorpus;

// Bytes of text that are encoded at once, and the rest of a line; ids between two calls of
// on_progress.
constexpr size_t kPiece = 1 << 16;

absl::Status TooLarge(const SuffixCorpusFile& file, size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      file.path, ": takes at least ", bytes, " bytes, --suffix_corpus_bytes is ", file.most_bytes));
}

absl::StatusOr<std::vector<TokenId>> ReadIds(const SuffixCorpusFile& file, int vocab_size,
                                             const std::function<void()>& on_progress,
                                             std::istream* in) {
  std::vector<TokenId> tokens;
  std::string line;
  for (int number = 1; std::getline(*in, line); ++number) {
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipWhitespace())) {
      int id = -1;
      if (!absl::SimpleAtoi(word, &id) || id < 0 || id >= vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat(file.path, ": line ", number, ": \"", word.substr(0, 20),
                         "\" is no token id of the model, which are 0 to ", vocab_size - 1));
      }
      tokens.push_back(id);
      if (tokens.size() % kPiece == 0) on_progress();
    }
    tokens.push_back(SuffixCorpus::kEnd);
    if (SuffixCorpus::BytesFor(tokens.size()) > file.most_bytes) break;
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> ReadText(const SuffixCorpusFile& file,
                                              const std::string& model, int vocab_size,
                                              const std::function<void()>& on_progress,
                                              std::istream* in) {
  const auto tokenizer = tokenizer::Tokenizer::Load(model);
  if (!tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": a text needs a tokenizer: ", tokenizer.status().message()));
  }
  std::vector<TokenId> tokens;
  std::string piece, line;
  const auto encode = [&] {
    for (const TokenId token : (*tokenizer)->Encode(piece, /*add_special_tokens=*/false))
      if (token < vocab_size) tokens.push_back(token);
    piece.clear();
  };
  while (std::getline(*in, line)) {
    absl::StrAppend(&piece, line, in->eof() ? "" : "\n");
    if (piece.size() < kPiece) continue;
    encode();
    on_progress();
    if (SuffixCorpus::BytesFor(tokens.size()) > file.most_bytes) break;
  }
  encode();
  tokens.push_back(SuffixCorpus::kEnd);
  return tokens;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SuffixCorpus>> LoadSuffixCorpus(
    const SuffixCorpusFile& file, const std::string& model, int vocab_size,
    const std::function<void()>& on_progress) {
  if (file.path.empty()) return nullptr;
  const std::function<void()> moves_on = on_progress ? on_progress : [] {};
  std::ifstream in(file.path, std::ios::binary);
  if (!in || in.peek() == std::ifstream::traits_type::eof())
    return absl::InvalidArgumentError(
        absl::StrCat("--suffix_corpus: ", file.path, ": cannot be read, or is empty"));
  COPPICE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                           absl::EndsWith(file.path, ".ids")
                               ? ReadIds(file, vocab_size, moves_on, &in)
                               : ReadText(file, model, vocab_size, moves_on, &in));
  const size_t bytes = SuffixCorpus::BytesFor(tokens.size());
  if (bytes > file.most_bytes) return TooLarge(file, bytes);
  auto corpus = std::make_shared<const SuffixCorpus>(std::move(tokens), moves_on);
  spdlog::info("suffix corpus {}: {} tokens, {:.1f} MB", file.path, corpus->size(),
               corpus->bytes() * 1e-6);
  return corpus;
}

}  // namespace coppice::worker
