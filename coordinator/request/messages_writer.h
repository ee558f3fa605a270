// Answers of /v1/messages: Anthropic's message and its events. Made by answer_writer.
#pragma once

#include <memory>

#include "coordinator/request/answer_writer.h"

namespace coppice::coordinator {

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const GenerateRequest* request);

}  // namespace coppice::coordinator
