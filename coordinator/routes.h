// The HTTP application: routes, rules for method and content type, and the answer of every
// endpoint. Event-loop thread.
#pragma once

#include <memory>
#include <string>

#include "coordinator/api/api.h"
#include "coordinator/cluster/cluster_json.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/metrics.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

struct RoutesContext {
  ApiContext api;
  int max_model_len = 0;  // 0: the model's own
  int64_t started_unix = 0;
  const Clock* clock = nullptr;
  const NodeRegistry* registry = nullptr;
  Dispatcher* dispatcher = nullptr;
  Metrics* metrics = nullptr;
};

class Routes : public HttpApp {
 public:
  // All that context points to must outlive the routes.
  explicit Routes(RoutesContext context) : context_(std::move(context)) {}

  std::optional<HttpReply> CheckHead(const HttpRequest& request) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  void Observe(const HttpRequest& request, int status, double seconds) override;
  void SetConnections(int open) override;

 private:
  void Complete(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange);
  ModelCard Card() const;
  HttpReply Models() const;
  HttpReply Model(const std::string& id) const;
  HttpReply Ready() const;
  HttpReply Cluster() const;
  int MaxModelLen() const;

  const RoutesContext context_;
};

}  // namespace coppice::coordinator
