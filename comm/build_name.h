// Identifies the build of Coppice that a process runs, as far as its ranks must agree. Any thread.
#pragma once

#include <string>

namespace coppice::comm {

// The version, and a hash of the format of the messages from leader to ranks: "coppice 0.2.0,
// messages 9f31c0de".
std::string BuildName();

}  // namespace coppice::comm
