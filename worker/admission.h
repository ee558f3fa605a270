// Checks a start message and turns it into a Sequence, or refuses it. The scheduler decides later
// whether there is KV for it. Called by the engine. Pure.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "grammar/format_store.h"
#include "model/model_config.h"
#include "proto/control.pb.h"
#include "worker/scheduler.h"
#include "worker/sequence.h"

namespace coppice::worker {

// Why a sequence cannot be served, with an error code of the API.
struct Refusal {
  std::string code;  // "invalid_value", "unsupported_combination", "kv_capacity_exceeded", ...
  std::string message;
};

struct StartedSequence {
  std::unique_ptr<Sequence> sequence;  // id, prompt and the time of arrival are set in any case
  std::optional<Refusal> refusal;
};

// formats: without a vocabulary, formats and stop strings are refused.
StartedSequence StartSequence(const proto::StartSequence& start, const model::ModelConfig& model,
                              grammar::FormatStore* formats, const Scheduler& scheduler,
                              double now_s);

}  // namespace coppice::worker
