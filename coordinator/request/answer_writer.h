// How an answer is written: the whole of it, or the events of a stream. There is one implementation
// for each form of answers (docs/api.md 3), made by request, called through outbox. Each writer
// belongs to one request. Its functions are called one after the other, by any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "coordinator/api/generate_request.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/request/response_json.h"

namespace coppice::coordinator {

class AnswerWriter {
 public:
  using Events = std::vector<StreamEvent>;
  virtual ~AnswerWriter() = default;
  virtual ErrorForm error_form() const { return ErrorForm::kOpenAi; }

  // A whole answer. show, beam_mass and rounds: as for CompletionBody.
  virtual std::string Body(const AnswerIdentity& identity, std::vector<Choice> choices,
                           absl::FunctionRef<void(Choice*)> show,
                           const std::vector<double>& beam_mass, const Usage& usage,
                           const std::optional<std::vector<std::string>>& rounds) = 0;
  // The events of a stream, in this order: what choices bring, then the end, or an error.
  virtual Events Delta(const AnswerIdentity& identity, absl::Span<const Choice> choices,
                       std::optional<double> beam_mass, const EventUsage& usage) = 0;
  // Rounds, before the choices that they brought. Other forms of answers do not show them.
  virtual Events Rounds(const AnswerIdentity& /*identity*/,
                        absl::Span<const std::string> /*rounds*/, const EventUsage& /*usage*/) {
    return {};
  }
  virtual Events End(const AnswerIdentity& identity, const Usage& usage) = 0;
  virtual Events Error(const AnswerIdentity& identity, const ApiError& error) = 0;
};

// request: complete when the first function is called; must outlive the writer.
std::unique_ptr<AnswerWriter> MakeAnswerWriter(const GenerateRequest* request);

// What the ids of such answers begin with, such as "chatcmpl-".
const char* AnswerIdPrefix(AnswerForm form);

}  // namespace coppice::coordinator
