#include "coordinator/request/answer_writer.h"

#include <string>
#include <utility>

#include "coordinator/request/answer_page.h"
#include "coordinator/request/messages_writer.h"
#include "coordinator/request/responses_writer.h"

namespace coppice::coordinator {
namespace {

// /v1/completions and /v1/chat/completions.
class CompletionWriter : public AnswerWriter {
 public:
  explicit CompletionWriter(const GenerateRequest* request) : request_(*request) {}

  std::string Body(const AnswerIdentity& identity, std::vector<Choice> choices,
                   absl::FunctionRef<void(Choice*)> show, const std::vector<double>& beam_mass,
                   const Usage& usage,
                   const std::optional<std::vector<std::string>>& rounds) override {
    return CompletionBody(identity, std::move(choices), show, beam_mass, usage, rounds);
  }
  Events Delta(const AnswerIdentity& identity, absl::Span<const Choice> choices,
               std::optional<double> beam_mass, const EventUsage& usage) override {
    return One(CompletionEvent(HeadOf(identity), identity.chat, choices, beam_mass, usage));
  }
  Events Rounds(const AnswerIdentity& identity, absl::Span<const std::string> rounds,
                const EventUsage& usage) override {
    return One(RoundsEvent(HeadOf(identity), rounds, usage));
  }
  Events End(const AnswerIdentity& identity, const Usage& usage) override {
    Events events;
    if (request_.include_usage) events.push_back({UsageEvent(identity, usage), ""});
    events.push_back({"[DONE]", ""});
    return events;
  }
  Events Error(const AnswerIdentity&, const ApiError& error) override {
    return {{ErrorBody(error), ""}};
  }

 private:
  static Events One(std::string data) {
    Events events(1);
    events[0].data = std::move(data);
    return events;
  }
  // The identity is complete before the first event, and stays as it is.
  const std::string& HeadOf(const AnswerIdentity& identity) {
    if (head_.empty()) head_ = EventHead(identity);
    return head_;
  }

  const GenerateRequest& request_;
  std::string head_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeAnswerWriter(const GenerateRequest* request) {
  switch (request->form) {
    case AnswerForm::kResponse:
      return MakeResponsesWriter(request);
    case AnswerForm::kMessage:
      return MakeMessagesWriter(request);
    case AnswerForm::kPage:
      return MakeAnswerPage(request);
    default:
      return std::make_unique<CompletionWriter>(request);
  }
}

const char* AnswerIdPrefix(AnswerForm form) {
  switch (form) {
    case AnswerForm::kCompletion:
      return "cmpl-";
    case AnswerForm::kChat:
      return "chatcmpl-";
    case AnswerForm::kResponse:
      return "resp_";
    case AnswerForm::kMessage:
      return "msg_";
    case AnswerForm::kPage:
      break;
  }
  return "page-";
}

}  // namespace coppice::coordinator
