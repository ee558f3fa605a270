// What a decoder knows of a format that the text of a sequence must have: which tokens may follow
// each path. Implemented by grammar/token_grammar.h, which has the bytes of the vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/types.h"

namespace coppice {

// What a request asks for. The text is read by grammar/compile.h, that of a catalogue by
// catalogue/catalogue_query.h.
struct FormatSpec {
  enum class Kind { kNone, kRegex, kGrammar, kJsonSchema, kStructuralTag, kCatalogue };
  Kind kind = Kind::kNone;
  std::string text;

  bool operator==(const FormatSpec& other) const {
    return kind == other.kind && text == other.text;
  }
};

// Bytes of a format's text.
inline constexpr size_t kMostFormatBytes = 256 << 10;

absl::string_view FormatKindName(FormatSpec::Kind kind);  // "regex", ..., "catalogue"; ""
absl::StatusOr<FormatSpec::Kind> ParseFormatKind(absl::string_view name);

// Tokens that may come next.
struct AllowedTokens {
  // If more tokens are allowed, they are not listed, and rows are read whole.
  static constexpr int kMostListed = 2048;

  int count = 0;
  std::vector<TokenId> listed;  // ascending; empty if there are more than kMostListed
  // Bit v % 64 of word v / 64; ids beyond are not allowed. Empty: all allowed tokens are listed.
  std::vector<uint64_t> bits;

  std::vector<TokenId> Tokens() const;  // all of them, ascending
  bool Has(TokenId token) const {
    if (bits.empty()) return std::binary_search(listed.begin(), listed.end(), token);
    const auto word = static_cast<size_t>(token) / 64;
    return token >= 0 && word < bits.size() && (bits[word] >> (token % 64) & 1) != 0;
  }
};

// Any thread.
class OutputFormat {
 public:
  // Two paths with equal states have equal futures.
  using State = int32_t;
  static constexpr State kBroken = -1;  // the text does not have the format and cannot reach it

  virtual ~OutputFormat() = default;
  virtual State Start() const = 0;  // state after the prompt
  // The state after one more token; kBroken if it was not allowed.
  virtual State Next(State state, TokenId token) const = 0;
  // The tokens that may follow. Ids that end a hypothesis are allowed where the text has the
  // format. After kBroken: nullptr, for every token, because such a row is never read.
  virtual std::shared_ptr<const AllowedTokens> Allowed(State state) const = 0;
  // Allowed(state) left tokens out, because the format needs more states than are kept.
  virtual bool CutShort(State state) const = 0;
  // The text is whole and nothing can follow it: the token before it has ended the hypothesis, as
  // one that completes a stop string does. No row is read after such a state.
  virtual bool Complete(State) const { return false; }
  // Some state is complete. False: Complete need not be asked.
  virtual bool has_complete_states() const { return false; }
};

}  // namespace coppice
