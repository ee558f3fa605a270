// `system` and `messages` of /v1/messages as messages of a chat. Called by messages_fields.
#pragma once

#include "coordinator/api/translation.h"

namespace coppice::coordinator {

// A result of a tool is a message of its own. If the last message is the assistant's, its text is
// continued.
void ReadMessages(Translator* translator);

}  // namespace coppice::coordinator
