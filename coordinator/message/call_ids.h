// Names for the calls of an answer. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "coordinator/message/tool_format.h"

namespace coppice::coordinator {

// Of the call with this index. Follows from the arguments, so that a repeated request has the same.
std::string CallId(CallIds ids, const std::string& seed, const std::string& name, size_t index);

}  // namespace coppice::coordinator
