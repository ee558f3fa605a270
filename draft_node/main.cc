// coppice-draft: a whole draft model that grows forests for worker leaders.
#include "draft_node/draft_main.h"

int main(int argc, char** argv) { return coppice::draft_node::DraftMain(argc, argv); }
