// The form in which a request is answered: that of its endpoint. Value type.
#pragma once

namespace coppice::coordinator {

enum class AnswerForm {
  kCompletion,  // /v1/completions
  kChat,        // /v1/chat/completions
  kResponse,    // /v1/responses
  kMessage,     // /v1/messages
  kPage,        // /ask, the form of the page
};

}  // namespace coppice::coordinator
