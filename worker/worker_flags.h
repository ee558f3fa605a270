// The flags of coppice-worker. Called by worker_main, and by the program that writes docs/flags.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/flag_table.h"
#include "node/node_flags.h"
#include "worker/engine.h"
#include "worker/model_check.h"
#include "worker/suffix_corpus_file.h"

namespace coppice::worker {

inline constexpr char kProgram[] = "coppice-worker";

// The draft of the leader's own process.
struct OwnDraftFlags {
  std::string dir;  // Hugging Face folder or GGUF file; "": none
  std::string weight_dtype = "auto";
  int64_t kv_bytes = int64_t{256} << 20;
  int max_sessions = 64;
};

struct WorkerFlags {
  node::NodeFlags node;  // runner: also the KV pool and the collectives of this rank
  int tp = 0;            // ranks per replica; 0: all
  std::string replica_id;
  std::string plan_listen = "tcp://127.0.0.1:*";
  OwnDraftFlags draft;
  bool check = false;  // says what the model is, and ends
  CheckedUse checked;
  SuffixCorpusFile suffix_corpus;
  EngineOptions engine;  // scheduler.max_step_s, deadlines of drafts, trace_file
};

// *flags must outlive the table.
FlagTable WorkerFlagTable(WorkerFlags* flags);

}  // namespace coppice::worker
