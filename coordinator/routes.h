// The HTTP application: routes, rules for method and content type, and the answer of every
// endpoint. Event-loop thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/api/api.h"
#include "coordinator/api/endpoints.h"
#include "coordinator/cluster/cluster_json.h"
#include "coordinator/cluster/cluster_trace.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/metrics.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/operations.h"
#include "coordinator/http/api_keys.h"
#include "coordinator/http/http.h"
#include "coordinator/http/parse_pool.h"
#include "coordinator/http/rate_limiter.h"
#include "coordinator/web/web_pages.h"

namespace coppice::coordinator {

struct RoutesContext {
  ApiContext api;
  std::string tokenizer_info;  // the answer of /tokenizer_info
  int max_model_len = 0;       // 0: the model's own
  size_t max_body_bytes = 0;
  int64_t started_unix = 0;
  // Reads the files of the flags again; the errors of those that cannot be used.
  std::function<std::vector<std::string>()> reload;
  const Clock* clock = nullptr;
  const NodeRegistry* registry = nullptr;
  Dispatcher* dispatcher = nullptr;
  Operations* operations = nullptr;
  ClusterTrace* trace = nullptr;
  Metrics* metrics = nullptr;
  const ApiKeys* keys = nullptr;
  RateLimiter* rate = nullptr;
  ParsePool* jobs = nullptr;
  bool metrics_require_key = false;
  bool web = true;
};

class Routes : public HttpApp {
 public:
  // All that context points to must outlive the routes.
  explicit Routes(RoutesContext context) : context_(std::move(context)), web_pages_(context_.web) {}

  std::optional<HttpReply> CheckHead(HttpRequest* request) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  void Observe(const HttpRequest& request, int status, double seconds) override;
  void SetConnections(int open) override;
  ErrorForm FormOfErrors(const std::string& path) const override;

 private:
  std::optional<ApiError> CheckRate(const Endpoint& endpoint, const HttpRequest& request);
  HttpReply Answer(const Endpoint& endpoint, const HttpRequest& request);
  // A request whose body may take long to read: it is read here, or in the background with Finish
  // afterwards.
  void ReadBody(EndpointId endpoint, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Gone(PendingBody* pending);  // its client has gone
  // Tells the client and the metrics.
  void NameIgnored(const IgnoredFields& ignored, HttpExchange* exchange);
  void Finish(PendingBody* pending, bool admitted);
  void Refuse(const PendingBody& pending, const ApiError& error);
  static Client ClientOf(const HttpRequest& request);
  std::shared_ptr<Request> MakeRequest(GenerateRequest generate, const PendingBody& pending) const;
  ModelCard Card(const std::string& name) const;
  HttpReply Models() const;
  HttpReply Model(const std::string& id) const;
  HttpReply Ready() const;
  HttpReply Version() const;
  HttpReply Reload() const;
  HttpReply RequestTimeline(const std::string& request_id) const;
  HttpReply MetricsText() const;
  HttpReply Cluster() const;
  // The longest context, by the first of these replicas and by the flag. 0: neither gives one.
  int LenOf(const std::vector<const Node*>& replicas) const;
  int ModelVocab() const;  // of a ready replica, else of any that is known; 0: none
  int ShownLen() const;

  const RoutesContext context_;
  const WebPages web_pages_;
};

}  // namespace coppice::coordinator
