// Answers of /v1/responses: OpenAI's response object and its events. Made by answer_writer.
#pragma once

#include <memory>

#include "coordinator/request/answer_writer.h"

namespace coppice::coordinator {

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const GenerateRequest* request);

}  // namespace coppice::coordinator
