// Which sequences a replica takes: a start message, checked and turned into a Sequence. Whether its
// KV fits now is the scheduler's to say. Called by the engine. Pure.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/model_config.h"
#include "proto/control.pb.h"
#include "worker/scheduler.h"
#include "worker/sequence.h"

namespace coppice::worker {

// Why a sequence cannot be served, in the API's words.
struct Refusal {
  std::string code;  // "invalid_value", "unsupported_combination", "kv_capacity_exceeded", ...
  std::string message;
};

struct StartedSequence {
  std::unique_ptr<Sequence> sequence;  // id, prompt and the time of arrival are set in any case
  std::optional<Refusal> refusal;
};

StartedSequence StartSequence(const proto::StartSequence& start, const model::ModelConfig& model,
                              const Scheduler& scheduler, double now_s);

}  // namespace coppice::worker
