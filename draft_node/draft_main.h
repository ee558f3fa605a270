// Start-up and shutdown of a draft node process.
#pragma once

namespace coppice::draft_node {

// Exit status: 0 clean stop, 1 cannot start or failed, 2 bad flags.
int DraftMain(int argc, char** argv);

}  // namespace coppice::draft_node
