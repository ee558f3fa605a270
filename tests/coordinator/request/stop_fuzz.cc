// Any vocabulary of byte pieces, prompt, completion and stop strings: the detokenizer, the text of a
// choice and the replica's stop strings give what a naive search of the whole text gives, in any
// pieces. fuzz.sh runs it with libFuzzer; a normal test runs the seeds.
//
// An input: two bytes of switches, min_tokens, the vocabulary, the stop strings, the prompt, each with its
// length before it, and tokens of the completion to the end.
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/request/choice_text.h"
#include "coordinator/request/stop_matcher.h"
#include "tests/coordinator/request/naive_text.h"
#include "tests/coordinator/request/piece_tokenizer.h"
#include "tests/testing/fuzz_require.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/utf8.h"

namespace coppice::coordinator {
namespace {

using test::Require;

constexpr size_t kMostTokens = 32;  // of a completion; keeps the naive search fast

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  size_t Byte() { return left_ == 0 ? 0 : (--left_, *data_++); }
  size_t Below(size_t n) { return Byte() % n; }
  std::string Bytes(size_t n) {
    std::string bytes;
    while (bytes.size() < n && left_ > 0) bytes.push_back(static_cast<char>(Byte()));
    return bytes;
  }
  size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  size_t left_;
};

class Case {
 public:
  Case(const uint8_t* data, size_t size) {
    Input input(data, size);
    const size_t switches = input.Byte();
    group_ = 1 + input.Below(8);
    request_.skip_special_tokens = (switches & 1) != 0;
    request_.include_stop = (switches & 2) != 0;
    const int spaces[] = {0, 1, 3, INT_MAX};
    request_.params.min_tokens = static_cast<int>(input.Below(12));
    std::vector<std::string> pieces(1 + input.Below(16));
    for (std::string& piece : pieces) piece = input.Bytes(input.Below(8));
    std::vector<std::string>& stops = request_.params.stop_strings;
    for (size_t n = input.Below(5); n > 0; --n) {
      const std::string stop = input.Bytes(1 + input.Below(8));
      if (!stop.empty()) stops.push_back(stop);
    }
    tokenizer_ = std::make_unique<PieceTokenizer>(pieces, static_cast<int>(switches >> 4 & 3),
                                                  spaces[switches >> 2 & 3]);
    const auto token = [&] { return static_cast<TokenId>(input.Below(pieces.size() + 1)); };
    for (size_t n = input.Below(8); n > 0; --n) prompt_.push_back(token());
    while (input.left() > 0 && path_.size() < kMostTokens) path_.push_back(token());
    prompt_bytes_ = BytesOf({}).size();
    for (size_t n = 0; n <= path_.size(); ++n) texts_.push_back(After(path_, n));
  }

  void CheckDetokenizer() const {
    std::vector<TokenId> all = prompt_;
    all.insert(all.end(), path_.begin(), path_.end());
    const NaiveText decoded = NaiveCompletion(BytesOf(path_), 0);
    Require(tokenizer_->Decode(all, request_.skip_special_tokens) == decoded.settled + decoded.rest,
            "Decode differs from the naive text");
    for (const size_t step : {size_t{1}, group_, kMostTokens}) {
      tokenizer::Detokenizer detokenizer(tokenizer_.get(), prompt_, request_.skip_special_tokens);
      std::string sent;
      for (size_t at = 0; at < path_.size(); at += step) {
        const std::string piece = detokenizer.Append(absl::MakeConstSpan(path_).subspan(at, step));
        Require(piece == tokenizer::ValidUtf8(piece), "a piece is not valid UTF-8");
        sent += piece;
        Require(sent == texts_[std::min(at + step, path_.size())].settled,
                "the settled text differs from the naive one");
      }
      Require(detokenizer.Finish() == texts_.back().rest, "the rest differs from the naive one");
      Require(detokenizer.Finish().empty(), "Finish gives text twice");
    }
  }

  // Streamed token by token, and in groups.
  void CheckChoice(size_t step) const {
    const Found found = Find();
    ChoiceText choice(tokenizer_.get(), prompt_, request_);
    std::string sent;
    for (size_t at = 0; at < path_.size(); at += step) {
      sent += choice.Append(absl::MakeConstSpan(path_).subspan(at, step));
      const size_t have = std::min(at + step, path_.size());
      Require(sent == choice.text(), "the text is not what was sent");
      Require(sent == SentAfter(have, found), "what was sent is not all that cannot change");
    }
    sent += choice.Finish();
    Require(sent == found.text, "the answer differs from the naive one");
    Require(sent == choice.text(), "the finished text is not what was sent");
    Require(choice.stop() == found.stop, "another stop string is reported");
    Require(choice.tokens().size() == found.tokens, "another number of tokens is kept");
    Require(choice.offsets().size() == found.tokens, "not one offset for each token");
    for (size_t i = 0; i < found.tokens; ++i)
      Require(choice.offsets()[i] == CharactersBefore(i, found.tokens), "an offset differs");
  }

  // Characters of the completion that end before the token, if there are so many tokens.
  size_t CharactersBefore(size_t token, size_t tokens) const {
    const auto bytes_of = [this](size_t n) { return BytesOf({path_.begin(), path_.begin() + n}); };
    const std::string bytes = bytes_of(tokens);
    const size_t begin = bytes_of(token).size();
    size_t count = 0;
    for (size_t at = 0; at < bytes.size();) {
      bool whole = false;
      const size_t end = at + NaiveCharacter(bytes, at, &whole);
      const bool counts = at >= prompt_bytes_ || (whole && end > prompt_bytes_);
      count += counts && end <= begin;
      at = end;
    }
    return count;
  }

  // Ends at the token at which the choice is cut, unless only the end of the text completes the stop.
  void CheckReplica() const {
    if (request_.params.stop_strings.empty()) return;
    const tokenizer::StopStrings stops(std::make_shared<tokenizer::Vocabulary>(*tokenizer_),
                                       request_.params.stop_strings, request_.skip_special_tokens,
                                       prompt_);
    const Found found = Find();
    StopText::State state = stops.Start();
    for (size_t i = 0; i < path_.size(); ++i) {
      const bool search = Searched(i + 1);
      if (search && !stops.Matched(state) && i % 8 == group_ % 8) CheckCompleting(stops, state, i);
      state = stops.Next(state, path_[i], search);
      Require(stops.Matched(state) == (found.stop && !found.at_finish && i + 1 >= found.tokens),
              "the replica ends elsewhere than the choice");
    }
  }

  // The matcher alone, over the whole text in pieces of so many bytes.
  void CheckMatcher(size_t step) const {
    const std::string text = texts_.back().settled + texts_.back().rest;
    const std::vector<std::string>& stops = request_.params.stop_strings;
    StopMatcher matcher(stops, request_.include_stop);
    std::string sent;
    for (size_t at = 0; at < text.size(); at += step) sent += matcher.Append(text.substr(at, step));
    sent += matcher.Finish();
    const auto stop = FindStop(text, stops);
    Require(matcher.matched().has_value() == stop.has_value(), "the matcher and the search differ");
    if (stop)
      Require(*matcher.matched() == text.substr(stop->begin, stop->end - stop->begin),
              "the matcher found another stop string");
    Require(sent == text.substr(0, !stop                   ? text.size()
                                   : request_.include_stop ? stop->end
                                                           : stop->begin),
            "the matcher cuts elsewhere");
  }

  size_t group() const { return group_; }

 private:
  struct Found {
    std::optional<std::string> stop;
    bool at_finish = false;  // completed by the text that was held back to the end
    size_t tokens = 0;       // that are kept
    std::string text;        // of the answer
  };

  bool Searched(size_t tokens) const {
    return static_cast<int>(tokens) >= request_.params.min_tokens;
  }

  // Of the prompt and these tokens, without the leading spaces that a text loses.
  std::string BytesOf(const std::vector<TokenId>& path) const {
    std::string bytes;
    for (const std::vector<TokenId>* tokens : {&prompt_, &path}) {
      for (const TokenId token : *tokens)
        bytes += tokenizer_->TokenBytes(token, request_.skip_special_tokens);
    }
    size_t dropped = 0;
    while (dropped < bytes.size() && bytes[dropped] == ' ' &&
           static_cast<int>(dropped) < tokenizer_->LeadingSpacesDropped())
      ++dropped;
    return bytes.substr(dropped);
  }

  NaiveText After(std::vector<TokenId> path, size_t tokens) const {
    path.resize(tokens);
    return NaiveCompletion(BytesOf(path), prompt_bytes_);
  }

  // The text before this many bytes is never searched.
  size_t Unsearched() const {
    const size_t before = std::max(request_.params.min_tokens, 1) - 1;
    if (before > path_.size()) return std::string::npos;
    if (before == path_.size() && !Searched(path_.size())) return std::string::npos;
    return texts_[before].settled.size();
  }

  Found Find() const {
    const std::string whole = texts_.back().settled + texts_.back().rest;
    Found found;
    found.tokens = path_.size();
    found.text = whole;
    const size_t from = Unsearched();
    if (from == std::string::npos) return found;
    const auto stop = FindStop(whole.substr(from), request_.params.stop_strings);
    if (!stop) return found;
    found.stop = whole.substr(from + stop->begin, stop->end - stop->begin);
    found.text = whole.substr(0, from + (request_.include_stop ? stop->end : stop->begin));
    found.at_finish = from + stop->end > texts_.back().settled.size();
    while (!found.at_finish && found.tokens > 0 &&
           texts_[found.tokens - 1].settled.size() >= from + stop->end)
      --found.tokens;
    return found;
  }

  // The text that cannot change after so many tokens.
  std::string SentAfter(size_t tokens, const Found& found) const {
    if (found.stop && !found.at_finish && tokens >= found.tokens) return found.text;
    const std::string& settled = texts_[tokens].settled;
    const size_t from = Unsearched();
    if (from >= settled.size()) return settled;
    const size_t held = StartOfStop(settled.substr(from), request_.params.stop_strings);
    return settled.substr(0, settled.size() - held);
  }

  void CheckCompleting(const tokenizer::StopStrings& stops, StopText::State state,
                       size_t tokens) const {
    std::vector<TokenId> path(path_.begin(), path_.begin() + static_cast<ptrdiff_t>(tokens));
    path.push_back(0);
    std::vector<TokenId> completing;
    for (TokenId token = 0; token < tokenizer_->vocab_size(); ++token) {
      path.back() = token;
      const std::string text = After(path, path.size()).settled;
      if (FindStop(text.substr(std::min(Unsearched(), text.size())), request_.params.stop_strings))
        completing.push_back(token);
    }
    Require(stops.Completing(state) == completing, "other tokens complete a stop string");
  }

  GenerateRequest request_;
  std::unique_ptr<PieceTokenizer> tokenizer_;
  std::vector<TokenId> prompt_, path_;
  size_t prompt_bytes_ = 0;
  std::vector<NaiveText> texts_;  // [path + 1] after so many tokens
  size_t group_ = 1;              // tokens or bytes that arrive together
};

}  // namespace
}  // namespace coppice::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const coppice::coordinator::Case test(data, size);
  test.CheckDetokenizer();
  test.CheckChoice(1);
  test.CheckChoice(test.group());
  test.CheckReplica();
  test.CheckMatcher(1);
  test.CheckMatcher(test.group());
  return 0;
}
