#include "coordinator/message/call_head.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kMostSpace = 64;    // white space between two marks
constexpr size_t kMostKey = 256;     // of a member or an argument
constexpr size_t kMostScalar = 256;  // of a member before the name
constexpr size_t kMostMembers = 8;   // before the name
constexpr size_t kMostNote = 64;

bool IsSpace(char c) { return absl::StrContains(kMarkSpace, c); }

// Reads from the beginning of a text that may go on. Every function returns whether it has read what
// it is for; if not, unknown() says whether more text could change that.
class HeadCursor {
 public:
  HeadCursor(absl::string_view text, bool whole) : text_(text), whole_(whole) {}

  size_t at() const { return at_; }
  bool unknown() const { return unknown_; }
  void set_unknown() { unknown_ = !whole_; }

  // The next character, which stays unread. Fails at the end.
  bool Peek(char* c) {
    if (at_ == text_.size()) return set_unknown(), false;
    *c = text_[at_];
    return true;
  }

  bool Literal(absl::string_view literal) {
    const absl::string_view have = text_.substr(at_, literal.size());
    if (!absl::StartsWith(literal, have)) return false;
    if (have.size() < literal.size()) return set_unknown(), false;
    at_ += literal.size();
    return true;
  }

  void Space() {
    for (size_t n = 0; n < kMostSpace && at_ < text_.size() && IsSpace(text_[at_]); ++n) ++at_;
  }

  bool SpaceAndLiteral(absl::string_view literal) {
    Space();
    return Literal(literal);
  }

  // A text of a format, with any white space around its parts.
  bool Chunks(absl::string_view text) {
    while (true) {
      const absl::string_view chunk = FirstChunk(text, &text);
      if (chunk.empty()) return true;
      if (!SpaceAndLiteral(chunk)) return false;
    }
  }

  // Up to `end`, which is read too and not part of the result.
  bool Until(absl::string_view end, size_t most, absl::string_view* found) {
    const absl::string_view window = text_.substr(at_, most + end.size());
    const size_t size = window.find(end);
    if (size == absl::string_view::npos) {
      if (window.size() < most + end.size()) set_unknown();
      return false;
    }
    *found = window.substr(0, size);
    at_ += size + end.size();
    return true;
  }

  // Reads the first of these that is there. read(element, cursor).
  template <typename Elements, typename Read>
  bool Any(const Elements& elements, Read read) {
    for (const auto& element : elements) {
      HeadCursor branch = *this;
      const bool found = read(element, &branch);
      if (found && !unknown_) {
        *this = branch;
        return true;
      }
      if (found) return false;  // an earlier one may still win
      unknown_ = unknown_ || branch.unknown_;
    }
    return false;
  }

 private:
  absl::string_view text_;
  bool whole_;
  size_t at_ = 0;
  bool unknown_ = false;
};

// A key of JSON and its colon. Keys with escapes are not those of calls.
bool ReadKey(HeadCursor* cursor, absl::string_view* key) {
  return cursor->SpaceAndLiteral("\"") && cursor->Until("\"", kMostKey, key) &&
         !absl::StrContains(*key, '\\') && cursor->SpaceAndLiteral(":");
}

// A string without escapes, a number or a word of JSON.
bool ReadScalar(HeadCursor* cursor) {
  cursor->Space();
  char c;
  if (!cursor->Peek(&c)) return false;
  absl::string_view value;
  if (c == '"')
    return cursor->Literal("\"") && cursor->Until("\"", kMostScalar, &value) &&
           !absl::StrContains(value, '\\');
  for (size_t n = 0; n < kMostScalar; ++n) {
    if (!cursor->Peek(&c)) return false;
    if (IsSpace(c) || c == ',' || c == '}') return n > 0;
    if (absl::StrContains("{}[]\"", c)) return false;
    cursor->Literal(absl::string_view(&c, 1));
  }
  return false;
}

// Reads a head for one format and remembers what it found.
class HeadOfCall {
 public:
  HeadOfCall(const ToolFormat& format, absl::Span<const Tool> tools)
      : format_(format), tools_(tools) {}

  // After call_open.
  bool Read(bool early, HeadCursor* cursor) {
    cursor->Space();
    switch (format_.kind) {
      case CallKind::kJson:
        return cursor->Literal("{") && Members(early, cursor);
      case CallKind::kNamedJson:
        return Named(cursor);
      case CallKind::kPythonic:
        return Name(cursor, [](HeadCursor* c) { return c->SpaceAndLiteral("("); });
      case CallKind::kXml:
        return Name(cursor, [this](HeadCursor* c) { return EndOfXmlName(c); });
    }
    return false;
  }

  // After a [, if there is one.
  bool ReadListed(bool early, HeadCursor* cursor) {
    char c;
    head_ = {};
    head_.place.call_close = format_.call_close;
    cursor->Space();
    if (!cursor->Peek(&c)) return false;
    const bool lists = format_.kind == CallKind::kJson || format_.kind == CallKind::kPythonic;
    if (lists && c == '[') {
      head_.place.in_list = true;
      cursor->Literal("[");
    } else if (format_.kind == CallKind::kPythonic && format_.list) {
      return false;
    }
    return Read(early, cursor);
  }

  // Members of the object up to the name, or up to the value of early arguments.
  bool Members(bool early, HeadCursor* cursor) {
    for (size_t n = 0; n < kMostMembers; ++n) {
      absl::string_view key;
      if (!ReadKey(cursor, &key)) return false;
      cursor->Space();
      if (key == "name") {
        return cursor->Literal("\"") &&
               Name(cursor, [](HeadCursor* c) { return c->Literal("\""); });
      }
      char c;
      if (!cursor->Peek(&c)) return false;
      if (early && c == '{' && CallReader::IsArgumentKey(key)) {
        head_.begins = Begins::kEarlyArguments;
        return true;
      }
      if (!ReadScalar(cursor) || !cursor->SpaceAndLiteral(",")) return false;
    }
    return false;
  }

  CallHead Result(bool found, const HeadCursor& cursor) {
    if (!found) return {.begins = cursor.unknown() ? Begins::kUnknown : Begins::kNothing};
    head_.size = cursor.at();
    return head_;
  }

  void set_begins(Begins begins) { head_.begins = begins; }

 private:
  // A name of a tool, and behind it what `end` reads.
  template <typename End>
  bool Name(HeadCursor* cursor, End end) {
    return cursor->Any(tools_, [&](const Tool& tool, HeadCursor* branch) {
      if (!branch->Literal(tool.name) || !end(branch)) return false;
      head_.begins = Begins::kCall;
      head_.tool = &tool;
      return true;
    });
  }

  bool Named(HeadCursor* cursor) {
    if (!Name(cursor, [this](HeadCursor* c) { return EndOfName(c); })) return false;
    char c;
    cursor->Space();
    return cursor->Peek(&c) && c == '{';
  }

  bool EndOfName(HeadCursor* cursor) const {
    absl::string_view rest, note;
    const absl::string_view end = FirstChunk(format_.name_end, &rest);
    if (end.empty()) {
      char c;
      return cursor->Peek(&c) && IsSpace(c);
    }
    const absl::string_view notes[] = {"", format_.name_note};
    return cursor->Any(notes, [&](absl::string_view mark, HeadCursor* branch) {
      if (mark.empty()) return branch->Chunks(format_.name_end);
      return branch->Literal(mark) && branch->Until(end, kMostNote, &note) && branch->Chunks(rest);
    });
  }

  // A name that only white space ends is whole when what may follow it does.
  bool EndOfXmlName(HeadCursor* cursor) const {
    if (!cursor->Chunks(format_.name_end)) return false;
    absl::string_view rest;
    if (!FirstChunk(format_.name_end, &rest).empty()) return true;
    const absl::string_view follow[] = {FirstChunk(format_.argument_open, &rest),
                                        FirstChunk(format_.call_close, &rest)};
    HeadCursor ahead = *cursor;
    const bool found = ahead.Any(
        follow, [](absl::string_view mark, HeadCursor* c) { return c->SpaceAndLiteral(mark); });
    if (!found && ahead.unknown()) cursor->set_unknown();
    return found;
  }

  const ToolFormat& format_;
  absl::Span<const Tool> tools_;
  CallHead head_;
};

}  // namespace

absl::string_view FirstChunk(absl::string_view text, absl::string_view* rest) {
  const size_t begin = std::min(text.find_first_not_of(kMarkSpace), text.size());
  const size_t end = std::min(text.find_first_of(kMarkSpace, begin), text.size());
  *rest = text.substr(end);
  return text.substr(begin, end - begin);
}

CallHead CallReader::Section(absl::string_view text, bool first, bool early, bool whole) const {
  HeadOfCall head(*format_, tools_);
  HeadCursor cursor(text, whole);
  const bool found =
      cursor.Any(format_->sections, [&](const CallSection& section, HeadCursor* branch) {
        if (!section.anywhere && !first) return false;
        if (!branch->Chunks(section.open)) return false;
        const bool marks[] = {false, true};
        return branch->Any(marks, [&](bool mark, HeadCursor* c) {
          if (!mark) return c->Chunks(format_->call_open) && head.ReadListed(early, c);
          if (format_->content_mark.empty() || !c->Literal(format_->content_mark)) return false;
          head.set_begins(Begins::kContentMark);
          return true;
        });
      });
  return head.Result(found, cursor);
}

CallHead CallReader::Next(absl::string_view text, const CallPlace& place, bool early,
                          bool whole) const {
  CallHead unknown{.begins = Begins::kUnknown};
  const auto close = [&](absl::string_view closing, CallPlace after) -> CallHead {
    absl::string_view rest;
    HeadCursor cursor(text, whole);
    if (FirstChunk(closing, &rest).empty()) return {};
    if (cursor.Chunks(closing))
      return {.begins = Begins::kClose, .size = cursor.at(), .place = after};
    return cursor.unknown() ? unknown : CallHead();
  };
  CallPlace after = place;
  after.call_close = "";
  std::vector<CallHead> found = {close(place.call_close, after)};
  after = place;
  after.in_list = false;
  if (place.in_list) found.push_back(close("]", after));
  after.section_closed = true;
  if (!place.section_closed && !place.in_list) {
    for (const CallSection& section : format_->sections)
      found.push_back(close(section.close, after));
  }
  if (!place.section_closed) found.push_back(NextCall(text, place.in_list, early, whole));
  for (const CallHead& head : found) {
    if (head.begins != Begins::kNothing) return head;
  }
  return {};
}

CallHead CallReader::NextCall(absl::string_view text, bool in_list, bool early, bool whole) const {
  HeadOfCall head(*format_, tools_);
  HeadCursor cursor(text, whole);
  const absl::string_view betweens[] = {format_->between, ""};
  const auto read = [&](absl::string_view between, HeadCursor* branch) {
    return branch->Chunks(between) && branch->Chunks(format_->call_open) &&
           head.Read(early, branch);
  };
  const bool found = in_list ? cursor.SpaceAndLiteral(",") && head.Read(early, &cursor)
                             : cursor.Any(betweens, read);
  CallHead result = head.Result(found, cursor);
  result.place = {.in_list = in_list, .call_close = format_->call_close};
  return result;
}

CallHead CallReader::Member(absl::string_view text, bool whole) const {
  HeadCursor cursor(text, whole);
  char c;
  cursor.Space();
  CallHead found;
  if (cursor.Peek(&c) && c == '}') {
    cursor.Literal("}");
    found = {.begins = Begins::kEnd, .size = cursor.at()};
  } else if (cursor.Literal(",") && ReadKey(&cursor, &found.key)) {
    cursor.Space();
    if (cursor.Peek(&c)) found.begins = Begins::kMember;
    found.size = cursor.at();
  }
  if (found.begins == Begins::kNothing && cursor.unknown()) found.begins = Begins::kUnknown;
  return found;
}

CallHead CallReader::LateName(absl::string_view text, bool whole) const {
  HeadOfCall head(*format_, tools_);
  HeadCursor cursor(text, whole);
  return head.Result(cursor.SpaceAndLiteral(",") && head.Members(false, &cursor), cursor);
}

CallHead CallReader::Argument(absl::string_view text, bool whole) const {
  absl::string_view rest;
  HeadCursor closing(text, whole);
  if (closing.SpaceAndLiteral(FirstChunk(format_->call_close, &rest)))
    return {.begins = Begins::kClose, .size = closing.at()};
  HeadCursor cursor(text, whole);
  CallHead found;
  const absl::string_view key_end = FirstChunk(format_->key_end, &rest);
  if (cursor.Chunks(format_->argument_open) && cursor.Until(key_end, kMostKey, &found.key) &&
      cursor.Chunks(rest)) {
    char c;
    const bool line = absl::EndsWith(format_->key_end, "\n");
    if (!line || cursor.Peek(&c)) found.begins = Begins::kArgument;
    if (line && found.begins == Begins::kArgument && c == '\n') cursor.Literal("\n");
    found.size = cursor.at();
  }
  if (found.begins == Begins::kNothing && (cursor.unknown() || closing.unknown()))
    found.begins = Begins::kUnknown;
  return found;
}

bool CallReader::MayClose(absl::string_view text, const CallPlace& place) const {
  const auto may = [&](absl::string_view closing) {
    HeadCursor cursor(text, false);
    return !cursor.Chunks(closing) && cursor.unknown();
  };
  if (may(place.call_close)) return true;
  return std::any_of(format_->sections.begin(), format_->sections.end(),
                     [&](const CallSection& section) { return may(section.close); });
}

}  // namespace coppice::coordinator
