// The answer to the form of the page (POST /ask) as a page: the question, the choices, the times.
#pragma once

#include <memory>

#include "coordinator/request/answer_writer.h"

namespace coppice::coordinator {

// request: as for MakeAnswerWriter. There is no stream.
std::unique_ptr<AnswerWriter> MakeAnswerPage(const GenerateRequest* request);

}  // namespace coppice::coordinator
