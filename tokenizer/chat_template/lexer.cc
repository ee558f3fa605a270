#include "tokenizer/chat_template/lexer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tokenizer/chat_template/python_text.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer::jinja {
namespace {

bool StartsName(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

class Lexer {
 public:
  explicit Lexer(absl::string_view source)
      : source_(absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}})) {
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();  // as Jinja2 does
  }

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) COPPICE_RETURN_IF_ERROR(ReadTextAndTag());
    Add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  absl::string_view rest() const { return absl::string_view(source_).substr(at_); }

  void Add(TokenKind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text)});
  }

  void Advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + count, '\n'));
    at_ += count;
    after_newline_ = count > 0 ? source_[at_ - 1] == '\n' : after_newline_;
  }

  void SkipSpace() {
    const absl::string_view left = StripText(rest(), /*left=*/true, /*right=*/false, nullptr);
    Advance(rest().size() - left.size());
  }

  // The text up to the next tag, as it is printed, and then the tag.
  absl::Status ReadTextAndTag() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == source_.size()) {
        Add(TokenKind::kText, std::string(rest()));
        Advance(rest().size());
        return absl::OkStatus();
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    AddText(absl::string_view(source_).substr(at_, tag - at_), sign, source_[tag + 1] != '{');
    Advance(tag - at_);
    const char type = source_[tag + 1];
    Advance(2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (type == '#') return SkipComment();
    if (type == '%' && IsRaw()) return ReadRaw();
    return ReadTag(type == '{');
  }

  // before_block: a block or comment follows, before which lstrip_blocks removes an indentation.
  void AddText(absl::string_view text, char sign, bool before_block) {
    if (sign == '-') {
      text = StripText(text, /*left=*/false, /*right=*/true, nullptr);
    } else if (sign != '+' && before_block) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || after_newline_) &&
          StripText(text.substr(line), true, false, nullptr).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) Add(TokenKind::kText, std::string(text));
  }

  // Skips the end of a tag, which begins at the place, and the white space that goes with it.
  void FinishTag(char sign, bool trims_newline) {
    Advance(2 + (sign != '\0' ? 1 : 0));
    if (sign == '-') {
      SkipSpace();
    } else if (sign == '\0' && trims_newline && at_ < source_.size() && source_[at_] == '\n') {
      Advance(1);
    }
  }

  absl::Status SkipComment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return TemplateError(line_, "a comment is not closed");
    const char last = end > at_ ? source_[end - 1] : '\0';
    const char sign = last == '-' || last == '+' ? last : '\0';
    Advance(end - (sign != '\0' ? 1 : 0) - at_);
    FinishTag(sign, /*trims_newline=*/true);
    return absl::OkStatus();
  }

  // Whether a {% raw %} begins after its "{%".
  bool IsRaw() const {
    absl::string_view text = StripText(rest(), true, false, nullptr);
    if (text.substr(0, 3) != "raw") return false;
    text = StripText(text.substr(3), true, false, nullptr);
    return text.substr(0, 2) == "%}" || text.substr(0, 3) == "-%}";
  }

  absl::Status ReadRaw() {
    const int begin_line = line_;
    const size_t close = source_.find("%}", at_);
    const bool strip = source_[close - 1] == '-';
    Advance(close + 2 - at_);
    if (strip) SkipSpace();
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char first = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const char sign = first == '-' || first == '+' ? first : '\0';
      const size_t word = tag + 2 + (sign != '\0' ? 1 : 0);
      absl::string_view text =
          StripText(absl::string_view(source_).substr(word), true, false, nullptr);
      if (text.substr(0, 6) != "endraw") continue;
      text = StripText(text.substr(6), true, false, nullptr);
      const char end_sign = text.substr(0, 1) == "-" || text.substr(0, 1) == "+" ? text[0] : '\0';
      if (end_sign != '\0') text.remove_prefix(1);
      if (text.substr(0, 2) != "%}") continue;
      AddText(absl::string_view(source_).substr(at_, tag - at_), sign, /*before_block=*/true);
      Advance(source_.size() - text.size() - (end_sign != '\0' ? 1 : 0) - at_);
      FinishTag(end_sign, /*trims_newline=*/true);
      return absl::OkStatus();
    }
    return TemplateError(begin_line, "raw is not closed");
  }

  absl::Status ReadTag(bool output) {
    const int begin_line = line_;
    Add(output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin);
    const absl::string_view end = output ? "}}" : "%}";
    std::string open;  // brackets that are not closed yet
    while (true) {
      SkipSpace();
      if (at_ == source_.size()) return TemplateError(begin_line, "a tag is not closed");
      if (open.empty()) {
        const char first = rest()[0];
        const char sign = first == '-' || (first == '+' && !output) ? first : '\0';
        if (rest().substr(sign != '\0' ? 1 : 0, 2) == end) {
          Add(output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd);
          FinishTag(sign, /*trims_newline=*/!output);
          return absl::OkStatus();
        }
      }
      COPPICE_RETURN_IF_ERROR(ReadToken(&open));
    }
  }

  absl::Status ReadToken(std::string* open) {
    const char c = rest()[0];
    if (IsDigit(c)) return ReadNumber();
    if (c == '"' || c == '\'') return ReadString(c);
    if (StartsName(c)) {
      size_t length = 1;
      while (length < rest().size() && (StartsName(rest()[length]) || IsDigit(rest()[length])))
        ++length;
      Add(TokenKind::kName, std::string(rest().substr(0, length)));
      Advance(length);
      return absl::OkStatus();
    }
    return ReadOperator(open);
  }

  absl::Status ReadOperator(std::string* open) {
    for (const absl::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (rest().substr(0, 2) != two) continue;
      Add(TokenKind::kOperator, std::string(two));
      Advance(2);
      return absl::OkStatus();
    }
    const char c = rest()[0];
    if (absl::string_view("+-/*%~[](){}<>=.:|,").find(c) == absl::string_view::npos) {
      return TemplateError(line_, absl::StrCat("unexpected character ",
                                               StringRepr(Characters(rest().substr(0, 4))[0])));
    }
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c)
        return TemplateError(line_, absl::StrCat("unexpected '", std::string(1, c), "'"));
      open->pop_back();
    }
    Add(TokenKind::kOperator, std::string(1, c));
    Advance(1);
    return absl::OkStatus();
  }

  // An integer in base 2, 8 or 16: 0x1F.
  absl::Status ReadPrefixedInteger(int base) {
    size_t length = 2;
    while (
        length < rest().size() &&
        (absl::ascii_isalnum(static_cast<unsigned char>(rest()[length])) || rest()[length] == '_'))
      ++length;
    const std::string digits = absl::StrReplaceAll(rest().substr(2, length - 2), {{"_", ""}});
    Token token{TokenKind::kInteger, line_, std::string(rest().substr(0, length))};
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, token.integer, base);
    if (digits.empty() || read.ec != std::errc() || read.ptr != end)
      return TemplateError(line_, absl::StrCat("the number ", token.text, " is not supported"));
    tokens_.push_back(std::move(token));
    Advance(length);
    return absl::OkStatus();
  }

  absl::Status ReadNumber() {
    const char prefix = rest().size() > 2 && rest()[0] == '0'
                            ? absl::ascii_tolower(static_cast<unsigned char>(rest()[1]))
                            : '\0';
    if (prefix == 'x' || prefix == 'o' || prefix == 'b')
      return ReadPrefixedInteger(prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2);
    size_t length = 0;
    const auto digits = [&] {
      while (length < rest().size() && (IsDigit(rest()[length]) || rest()[length] == '_')) ++length;
    };
    digits();
    bool is_float = false;
    // a.0.1: an item of an item
    const bool after_dot =
        tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
    if (!after_dot && length + 1 < rest().size() && rest()[length] == '.' &&
        IsDigit(rest()[length + 1])) {
      is_float = true;
      ++length;
      digits();
    }
    if (!after_dot && length < rest().size() && (rest()[length] == 'e' || rest()[length] == 'E')) {
      const size_t sign =
          length + 1 < rest().size() && (rest()[length + 1] == '+' || rest()[length + 1] == '-');
      if (length + 1 + sign < rest().size() && IsDigit(rest()[length + 1 + sign])) {
        is_float = true;
        length += 1 + sign;
        digits();
      }
    }
    const std::string text = absl::StrReplaceAll(rest().substr(0, length), {{"_", ""}});
    Token token{is_float ? TokenKind::kFloat : TokenKind::kInteger, line_, text};
    const bool leading_zero = !is_float && text.size() > 1 && text[0] == '0' &&
                              text.find_first_not_of('0') != std::string::npos;
    const bool read =
        is_float ? absl::SimpleAtod(text, &token.number) : absl::SimpleAtoi(text, &token.integer);
    if (!read || leading_zero || (length < rest().size() && StartsName(rest()[length])))
      return TemplateError(line_, absl::StrCat("the number ", text, " is not supported"));
    tokens_.push_back(std::move(token));
    Advance(length);
    return absl::OkStatus();
  }

  absl::Status ReadString(char quote) {
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) return TemplateError(line_, "a string is not closed");
    std::string text;
    COPPICE_RETURN_IF_ERROR(Unescape(rest().substr(1, end - 1), &text));
    Add(TokenKind::kString, std::move(text));
    Advance(end + 1);
    return absl::OkStatus();
  }

  // The escapes of Python. An unknown escape stays as it is.
  absl::Status Unescape(absl::string_view raw, std::string* text) {
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 == raw.size()) {
        *text += raw[i];
        continue;
      }
      const char c = raw[++i];
      static constexpr absl::string_view kLetters = "abfnrtv\\'\"";
      static constexpr absl::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
      const size_t letter = kLetters.find(c);
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (letter != absl::string_view::npos) {
        *text += kMeanings[letter];
      } else if (digits > 0) {
        uint32_t code = 0;
        const absl::string_view hex = raw.substr(i + 1, digits);
        if (hex.size() != digits || !absl::SimpleHexAtoi(hex, &code) || code > 0x10FFFF ||
            (code >= 0xD800 && code <= 0xDFFF)) {
          return TemplateError(line_, "a string has a bad escape");
        }
        AppendUtf8(code, text);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = c - '0';
        for (int more = 0; more < 2 && i + 1 < raw.size() && raw[i + 1] >= '0' && raw[i + 1] <= '7';
             ++more)
          code = 8 * code + (raw[++i] - '0');
        AppendUtf8(code, text);
      } else if (c == 'N') {
        return TemplateError(line_, "named escapes in strings are not supported");
      } else if (c != '\n') {
        *text += '\\';
        *text += c;
      }
    }
    return absl::OkStatus();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool after_newline_ =
      true;  // the text before the place ended with a line break, or there is none
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status TemplateError(int line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", why));
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  return Lexer(source).Run();
}

}  // namespace coppice::tokenizer::jinja
