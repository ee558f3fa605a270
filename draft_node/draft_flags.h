// The flags of coppice-draft. Called by draft_main, and by the program that writes docs/flags.md.
#pragma once

#include <string>

#include "base/flag_table.h"
#include "draft_node/draft_service.h"
#include "node/node_flags.h"

namespace coppice::draft_node {

inline constexpr char kProgram[] = "coppice-draft";

struct DraftFlags {
  DraftFlags() { node.runner.kv_bytes = int64_t{256} << 20; }

  node::NodeFlags node;  // runner: also the KV pool
  DraftServiceOptions service;
  std::string node_id;
  std::string listen = "direct://127.0.0.1:*";
};

// *flags must outlive the table.
FlagTable DraftFlagTable(DraftFlags* flags);

}  // namespace coppice::draft_node
