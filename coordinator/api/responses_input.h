// `input` of /v1/responses as messages of a chat. Called by responses_fields.
#pragma once

#include "coordinator/api/translation.h"

namespace coppice::coordinator {

// A text is a message of the user. Of a list, consecutive items of the assistant (reasoning, a
// message, calls of functions) are one message.
void ReadInput(Translator* translator);

}  // namespace coppice::coordinator
