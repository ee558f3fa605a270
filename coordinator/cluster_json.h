// What /cluster and /v1/models show, as JSON text (docs/api.md 1). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/api.h"
#include "coordinator/dispatcher.h"
#include "coordinator/node_registry.h"

namespace coppice {

std::string ClusterJson(const NodeRegistry& registry, const Dispatcher& dispatcher, double now_s);

struct ModelCard {
  std::string id;
  int64_t created = 0;    // unix seconds
  int max_model_len = 0;  // 0 = not known yet: null
};
// The object of /v1/models/{id}; capabilities list what admission accepts.
std::string ModelJson(const ModelCard& card, const ApiLimits& limits);
std::string ModelListJson(const ModelCard& card, const ApiLimits& limits);

}  // namespace coppice
