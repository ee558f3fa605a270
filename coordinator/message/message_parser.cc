#include "coordinator/message/message_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/message/call_arguments.h"
#include "coordinator/message/call_head.h"
#include "coordinator/message/call_ids.h"
#include "coordinator/message/text_arguments.h"
#include "coordinator/message/tool_format.h"

namespace coppice::coordinator {
namespace {

bool IsMarkSpace(char c) { return absl::StrContains(kMarkSpace, c); }

bool IsLineEnd(char c) { return c == '\n' || c == '\r'; }

}  // namespace

// Steps through the text. Each step takes what is decided from the front of the text that has not
// been taken, so that the parts follow from the text alone.
class MessageParser::State {
 public:
  explicit State(std::shared_ptr<const MessageSyntax> syntax)
      : syntax_(std::move(syntax)),
        format_(syntax_->tools.empty() ? nullptr : syntax_->tool_format),
        reader_(format_, syntax_->tools) {
    if (syntax_->reasoning.open.empty()) phase_ = Phase::kContent;
  }

  bool IsMark(absl::string_view token) const {
    const ReasoningMarks& marks = syntax_->reasoning;
    if (!marks.open.empty() && (token == marks.open || token == marks.close)) return true;
    return format_ != nullptr && std::find(format_->specials.begin(), format_->specials.end(),
                                           token) != format_->specials.end();
  }

  void Append(absl::string_view text) {
    absl::StrAppend(&text_, text);
    while (Step()) {
    }
    taken_before_ += at_;
    text_.erase(0, at_);
    if (phase_ == Phase::kEarlyArguments) early_at_ -= at_;
    at_ = 0;
  }

  void Finish() {
    whole_ = true;
    while (Step()) {
    }
    switch (phase_) {
      case Phase::kReasoning:
        absl::StrAppend(&parts_.reasoning, space_);
        break;
      case Phase::kArguments:
        python_->Finish(&Call().arguments);
        break;
      case Phase::kTextArguments:
        text_arguments_->Finish(&Call().arguments);
        break;
      case Phase::kBeginning:
      case Phase::kContent:
        if (!after_call_ && !drop_space_) absl::StrAppend(&parts_.content, space_);
        break;
      default:
        break;
    }
    space_.clear();
  }

  bool in_reasoning() const { return phase_ == Phase::kReasoning; }
  const MessageParts& parts() const { return parts_; }

 private:
  enum class Phase {
    kBeginning,  // before the reasoning
    kReasoning,
    kContent,
    kEarlyArguments,  // held back until the name of their call comes
    kMembers,         // kJson: behind the value of a member
    kValue,           // a value in JSON
    kArguments,       // kPythonic
    kTextArguments,   // kXml
    kAfterCall,
  };

  absl::string_view rest() const { return absl::string_view(text_).substr(at_); }
  ToolCall& Call() { return parts_.calls.back(); }

  // False: no more can be taken.
  bool Step() {
    switch (phase_) {
      case Phase::kBeginning:
        return StepBeginning();
      case Phase::kReasoning:
        return StepReasoning();
      case Phase::kContent:
        return StepContent();
      case Phase::kEarlyArguments:
        return StepEarlyArguments();
      case Phase::kMembers:
        return StepMembers();
      case Phase::kValue:
        return StepValue();
      case Phase::kArguments:
        return StepArguments();
      case Phase::kTextArguments:
        return StepTextArguments();
      case Phase::kAfterCall:
        return StepAfterCall();
    }
    return false;
  }

  void TakeSpace() {
    for (; at_ < text_.size() && IsMarkSpace(text_[at_]); ++at_) space_ += text_[at_];
  }

  // Whether the text goes on with this.
  Begins Mark(absl::string_view mark) const {
    const absl::string_view have = rest().substr(0, mark.size());
    if (!absl::StartsWith(mark, have)) return Begins::kNothing;
    if (have.size() == mark.size()) return Begins::kClose;
    return whole_ ? Begins::kNothing : Begins::kUnknown;
  }

  bool StepBeginning() {
    TakeSpace();
    const Begins open = Mark(syntax_->reasoning.open);
    if (open == Begins::kUnknown) return false;
    phase_ =
        syntax_->reasoning_begun || open == Begins::kClose ? Phase::kReasoning : Phase::kContent;
    if (open == Begins::kClose) {
      at_ += syntax_->reasoning.open.size();
      space_.clear();
    } else if (syntax_->reasoning_begun) {
      space_.erase(0, std::min(space_.find_first_not_of("\r\n"), space_.size()));
    }
    return true;
  }

  bool StepReasoning() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (IsLineEnd(c)) {
        if (!parts_.reasoning.empty() || !space_.empty()) space_ += c;
        continue;
      }
      const Begins close = Mark(syntax_->reasoning.close);
      if (close == Begins::kUnknown) return false;
      if (close == Begins::kClose) {
        at_ += syntax_->reasoning.close.size();
        space_.clear();
        drop_space_ = true;
        phase_ = Phase::kContent;
        return true;
      }
      absl::StrAppend(&parts_.reasoning, space_);
      space_.clear();
      parts_.reasoning += c;
    }
    return false;
  }

  // Takes a character into the content, with the white space before it.
  void TakeContent(char c) {
    if (IsMarkSpace(c)) {
      space_ += c;
      return;
    }
    if (!drop_space_ || !parts_.content.empty()) absl::StrAppend(&parts_.content, space_);
    space_.clear();
    parts_.content += c;
    first_ = after_call_ = drop_space_ = false;
  }

  bool StepContent() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (format_ != nullptr && !IsMarkSpace(c)) {
        const CallHead head = reader_.Section(rest(), first_, MayBeEarly(), whole_);
        if (head.begins == Begins::kUnknown) return false;
        if (head.begins != Begins::kNothing) {
          Begin(head);
          return true;
        }
      }
      TakeContent(c);
    }
    return false;
  }

  bool MayBeEarly() const { return taken_before_ + at_ >= no_early_before_; }

  void Begin(const CallHead& head) {
    if (head.begins == Begins::kEarlyArguments) {
      phase_ = Phase::kEarlyArguments;
      early_begin_ = head.size;
      early_at_ = at_ + head.size;
      early_done_ = false;
      place_ = head.place;
      json_ = {};
      return;
    }
    space_.clear();
    at_ += head.size;
    first_ = false;
    if (head.begins == Begins::kContentMark) return;
    parts_.calls.push_back(
        {CallId(format_->ids, syntax_->id_seed, head.tool->name, parts_.calls.size()),
         head.tool->name, ""});
    after_call_ = drop_space_ = true;
    place_ = head.place;
    argued_ = false;
    json_ = {};
    switch (format_->kind) {
      case CallKind::kJson:
        phase_ = Phase::kMembers;
        break;
      case CallKind::kNamedJson:
        TakeSpace();
        space_.clear();
        shown_ = true;
        phase_ = Phase::kValue;
        break;
      case CallKind::kPythonic:
        python_ = std::make_unique<PythonArgumentsReader>();
        phase_ = Phase::kArguments;
        break;
      case CallKind::kXml:
        text_arguments_ = std::make_unique<TextArgumentsReader>(*format_, *head.tool);
        phase_ = Phase::kTextArguments;
        break;
    }
  }

  // What follows is no part of the call.
  bool Break() {
    phase_ = Phase::kContent;
    return true;
  }

  bool StepEarlyArguments() {
    while (!early_done_ && early_at_ < text_.size())
      early_done_ = json_.Read(text_[early_at_++]) == Took::kLast;
    CallHead head{.begins = whole_ ? Begins::kNothing : Begins::kUnknown};
    const size_t size = early_at_ - at_;
    if (early_done_) head = reader_.LateName(rest().substr(size), whole_);
    if (head.begins == Begins::kUnknown) return false;
    if (head.begins == Begins::kNothing) {  // the text is read again, as content
      no_early_before_ = taken_before_ + early_at_;
      phase_ = Phase::kContent;
      return true;
    }
    std::string arguments(rest().substr(early_begin_, size - early_begin_));
    head.size += size;
    head.place = place_;
    Begin(head);
    Call().arguments = std::move(arguments);
    argued_ = true;
    return true;
  }

  bool StepMembers() {
    const CallHead head = reader_.Member(rest(), whole_);
    if (head.begins == Begins::kUnknown) return false;
    if (head.begins == Begins::kNothing) {  // what the end of the answer has cut off is dropped
      const bool cut = whole_ && reader_.Member(rest(), false).begins == Begins::kUnknown;
      if (cut) at_ = text_.size();
      return !cut && Break();
    }
    if (head.begins == Begins::kEnd) {
      if (!argued_) Call().arguments = "{}";
      phase_ = Phase::kAfterCall;
    } else {
      shown_ = !argued_ && CallReader::IsArgumentKey(head.key);
      argued_ = argued_ || shown_;
      json_ = {};
      phase_ = Phase::kValue;
    }
    at_ += head.size;
    return true;
  }

  bool StepValue() {
    const Phase after = format_->kind == CallKind::kNamedJson ? Phase::kAfterCall : Phase::kMembers;
    const size_t begin = at_;
    Took took = Took::kTaken;
    while (at_ < text_.size() && took == Took::kTaken) {
      took = json_.Read(text_[at_]);
      if (took != Took::kNone) ++at_;
    }
    if (shown_) Call().arguments.append(text_, begin, at_ - begin);
    if (took == Took::kTaken) return false;
    phase_ = after;
    return true;
  }

  bool StepArguments() {
    while (at_ < text_.size()) {
      const Took took = python_->Read(text_[at_], &Call().arguments);
      if (took == Took::kWrong) {
        for (const char c : python_->held()) TakeContent(c);
        return Break();
      }
      ++at_;
      if (took == Took::kLast) {
        phase_ = Phase::kAfterCall;
        return true;
      }
    }
    return false;
  }

  bool StepTextArguments() {
    absl::string_view text = rest();
    const Took took = text_arguments_->Read(&text, whole_, &Call().arguments);
    at_ = text_.size() - text.size();
    if (took == Took::kTaken) return false;
    if (took == Took::kWrong) return Break();
    FirstChunk(format_->call_close, &place_.call_close);
    phase_ = Phase::kAfterCall;
    return true;
  }

  bool StepAfterCall() {
    TakeSpace();
    const CallHead head = reader_.Next(rest(), place_, MayBeEarly(), whole_);
    if (head.begins == Begins::kUnknown) return false;
    if (head.begins == Begins::kNothing) {
      if (whole_ && reader_.MayClose(rest(), place_)) at_ = text_.size();
      if (whole_ && rest().empty()) return false;
      return Break();
    }
    if (head.begins != Begins::kClose) {
      Begin(head);
      return true;
    }
    at_ += head.size;
    space_.clear();
    place_ = head.place;
    return true;
  }

  const std::shared_ptr<const MessageSyntax> syntax_;
  const ToolFormat* const format_;  // nullptr: no calls
  const CallReader reader_;
  MessageParts parts_;
  Phase phase_ = Phase::kBeginning;
  bool whole_ = false;  // no more text comes

  std::string text_;  // from at_ on: not taken yet
  size_t at_ = 0;
  size_t taken_before_ = 0;  // bytes before text_
  std::string space_;        // white space that may stand beside a mark
  bool first_ = true;        // no content and no call has come
  bool after_call_ = false;  // nothing but white space has come since
  bool drop_space_ = false;  // space_ is that behind the reasoning or a call

  // Of the call that is read.
  CallPlace place_;
  bool argued_ = false;  // the arguments have come
  bool shown_ = false;   // the value in JSON is that of the arguments
  JsonValueReader json_;
  std::unique_ptr<PythonArgumentsReader> python_;
  std::unique_ptr<TextArgumentsReader> text_arguments_;

  // Of arguments that came before their name. Text that was held for them once is not held again, so
  // that no text is read more than twice.
  size_t early_begin_ = 0;  // behind at_
  size_t early_at_ = 0;
  bool early_done_ = false;
  size_t no_early_before_ = 0;
};

MessageParser::MessageParser(std::shared_ptr<const MessageSyntax> syntax)
    : state_(std::make_unique<State>(std::move(syntax))) {}
MessageParser::~MessageParser() = default;
MessageParser::MessageParser(MessageParser&&) noexcept = default;
MessageParser& MessageParser::operator=(MessageParser&&) noexcept = default;

void MessageParser::AppendText(absl::string_view text) { state_->Append(text); }

void MessageParser::AppendSpecial(absl::string_view token) {
  if (state_->IsMark(token)) state_->Append(token);
}

void MessageParser::Finish() { state_->Finish(); }

bool MessageParser::in_reasoning() const { return state_->in_reasoning(); }

const MessageParts& MessageParser::parts() const { return state_->parts(); }

}  // namespace coppice::coordinator
