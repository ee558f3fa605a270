// The JSON text of /cluster and /v1/models (docs/api.md 1). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/api/api.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/node_registry.h"

namespace coppice::coordinator {

std::string ClusterJson(const NodeRegistry& registry, const Dispatcher& dispatcher, double now_s);

struct ModelCard {
  std::string id;
  int64_t created = 0;                                  // unix seconds
  int max_model_len = 0;                                // 0 = not known yet: null
  bool chat = false;                                    // it has a chat template
  bool formats = false;                                 // outputs can be bound to a format
  const SamplingDefaults* sampling_defaults = nullptr;  // nullptr: none
};
// The object of /v1/models/{id}; capabilities list what admission accepts.
std::string ModelJson(const ModelCard& card, const ApiLimits& limits);
std::string ModelListJson(const ModelCard& card, const ApiLimits& limits);

}  // namespace coppice::coordinator
