// Text <-> token ids, from a Hugging Face folder: tokenizer.json (byte-level BPE, or
// SentencePiece-like BPE with byte fallback), else tokenizer.model (SentencePiece). Immutable after
// Load and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::tokenizer {

class Tokenizer {
 public:
  // Errors name the file and what was expected.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& dir);
  virtual ~Tokenizer() = default;

  virtual int vocab_size() const = 0;  // ids are [0, vocab_size)
  virtual TokenId bos_id() const = 0;  // -1 = none
  virtual std::vector<TokenId> eos_ids() const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
  // add_special_tokens: adds the tokens that the model's own tokenizer adds (BOS for Llama).
  // Invalid UTF-8 is read as U+FFFD.
  virtual std::vector<TokenId> Encode(absl::string_view text, bool add_special_tokens) const = 0;
  // The ids of a text that a chat template made: special tokens that are written in it become those
  // tokens, except those that contain a byte of `literal`, which has ascending offsets.
  virtual std::vector<TokenId> EncodeChat(absl::string_view text, absl::Span<const size_t> literal,
                                          bool add_special_tokens) const = 0;
  // A lower bound of the number of tokens of a text in valid UTF-8, in a fraction of the time of
  // Encode.
  virtual size_t FewestTokens(absl::string_view text) const {
    (void)text;
    return 0;
  }
  // The bytes of a message's text that keep special tokens out of it if they are literal, ascending.
  // Also those of tokens that only other texts before or after it complete (SpecialTexts::Find).
  virtual std::vector<size_t> FindSpecial(absl::string_view text) const = 0;
  // The bytes of one token inside a text; not always valid UTF-8 by themselves. "" for a special
  // token that is skipped and for an id outside the vocabulary (padded rows of a model). The
  // Detokenizer handles rules for spaces at the start of a text.
  virtual std::string TokenBytes(TokenId id, bool skip_special) const = 0;
  // How many leading spaces a whole text loses (the dummy prefix of SentencePiece): 0, 1, or
  // INT_MAX for all.
  virtual int LeadingSpacesDropped() const { return 0; }
  // The whole text of the ids. Each maximal invalid part of UTF-8 becomes U+FFFD.
  virtual std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const;
};

// Incremental text of a completion: Decode(prompt + ids) minus Decode(prompt), in pieces. Each
// piece is valid UTF-8, and the pieces concatenate to the text that a detokenizer returns for all
// ids at once. A character that begins in the prompt and ends in the completion is returned whole.
class Detokenizer {
 public:
  // tokenizer must outlive this.
  Detokenizer(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt, bool skip_special);
  std::string Append(absl::Span<const TokenId> tokens);  // the text that is now final
  // What a token would do, if it came next, to an unfinished character that Append holds back and
  // that begins in the completion. kEnds: the character ends before the token, as U+FFFD.
  enum class Effect { kNothingHeld, kContinues, kEnds, kHasNoText };
  Effect EffectOf(TokenId token) const;
  std::string Finish();  // the text that was held back, with invalid parts as U+FFFD

 private:
  void AddBytes(absl::Span<const TokenId> tokens);
  std::string TakeSettled(size_t end);  // text of pending_[0, end)

  const Tokenizer* tokenizer_;
  bool skip_special_;
  int spaces_to_drop_ = 0;     // > 0 while the text so far is only dropped spaces
  size_t prompt_pending_ = 0;  // bytes of pending_ that belong to the prompt
  std::string pending_;        // bytes of an incomplete character
};

}  // namespace coppice::tokenizer
