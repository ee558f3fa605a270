// The JSON text of /cluster and /v1/models (docs/api.md 1). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/api/api.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/operations.h"

namespace coppice::coordinator {

std::string ClusterJson(const NodeRegistry& registry, const Dispatcher& dispatcher,
                        const std::vector<DrainState>& drains, double now_s);

struct ModelCard {
  std::string id;                                       // served name
  int64_t created = 0;                                  // unix seconds
  int max_model_len = 0;                                // 0 = not known yet: null
  bool chat = false;                                    // it has a chat template
  bool formats = false;                                 // outputs can be bound to a format
  const SamplingDefaults* sampling_defaults = nullptr;  // nullptr: none
  nlohmann::ordered_json catalogues = nlohmann::ordered_json::array();  // CataloguesJson
};
// The served catalogues: name, items, fingerprint of each. nullptr: there is none.
nlohmann::ordered_json CataloguesJson(const catalogue::CatalogueStore* catalogues);
// The object of /v1/models/{id}; capabilities list what admission accepts.
std::string ModelJson(const ModelCard& card, const ApiLimits& limits);
// The list of /v1/models: the card under each of the names.
std::string ModelListJson(ModelCard card, const std::vector<std::string>& names,
                          const ApiLimits& limits);

}  // namespace coppice::coordinator
