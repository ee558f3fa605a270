#include "coordinator/coordinator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "catalogue/catalogue_query.h"
#include "coordinator/api/format_fields.h"
#include "coordinator/cluster/cluster_trace.h"
#include "coordinator/cluster/control_loop.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/metrics.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/operations.h"
#include "coordinator/http/api_keys.h"
#include "coordinator/http/parse_pool.h"
#include "coordinator/http/rate_limiter.h"
#include "coordinator/routes.h"
#include "tokenizer/vocabulary.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kTick(20);
constexpr double kInterruptDrain_s = 2;
constexpr double kFarewell_s = 1;  // time for nodes to leave after Stop

RegistryOptions ForRegistry(const CoordinatorOptions& options,
                            const tokenizer::Tokenizer& tokenizer) {
  RegistryOptions registry = options.registry;
  registry.tokenizer_vocab = tokenizer.vocab_size();
  return registry;
}

class CoordinatorImpl : public Coordinator {
 public:
  CoordinatorImpl(const CoordinatorOptions& options,
                  std::unique_ptr<tokenizer::Tokenizer> tokenizer,
                  std::unique_ptr<tokenizer::ChatPrompt> chat)
      : options_(options),
        tokenizer_(std::move(tokenizer)),
        chat_(std::move(chat)),
        metrics_(options.model_names.at(0), options.metrics_vllm_names),
        registry_(&clock_, ForRegistry(options, *tokenizer_)),
        dispatcher_(options.dispatcher, &clock_, &registry_, &metrics_,
                    [this](const std::string& peer, const proto::CoordinatorMessage& message) {
                      if (control_ != nullptr) control_->Send(peer, message);
                    }),
        operations_(&clock_, &registry_, &dispatcher_),
        trace_(&clock_, &registry_, &dispatcher_, &jobs_,
               [this](const std::string& peer, const proto::CoordinatorMessage& message) {
                 if (control_ != nullptr) control_->Send(peer, message);
               }),
        rate_(options.max_requests_per_minute),
        routes_(MakeContext()),
        tick_(io_),
        signals_(io_) {}

  ~CoordinatorImpl() override { control_.reset(); }  // its thread posts to the event loop

  absl::Status Listen() {
    COPPICE_ASSIGN_OR_RETURN(keys_,
                             ApiKeys::Load(options_.api_keys_file, options_.admin_keys_file));
    COPPICE_ASSIGN_OR_RETURN(http_,
                             HttpServer::Start(&io_, options_.http, &clock_, &routes_, &jobs_));
    if (!keys_.users_need_keys() && !http_->only_this_host()) {
      spdlog::warn(
          "{} can be reached from other hosts, and users need no key: give "
          "--api_keys_file, or listen on 127.0.0.1",
          http_->address());
    }
    return absl::OkStatus();
  }

  void ServeNodes(std::unique_ptr<comm::ServerChannel> channel) override {
    control_ = ControlLoop::Start(
        std::move(channel), [this](std::string peer, proto::NodeMessage message) {
          asio::post(io_, [this, peer = std::move(peer), message = std::move(message)]() mutable {
            if (message.has_step_trace())
              return trace_.Take(peer, std::move(*message.mutable_step_trace()));
            dispatcher_.OnNodeMessage(peer, message);
          });
        });
  }

  void HandleSignals() override {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    signals_.add(SIGHUP);
    AwaitSignal();
  }

  void Run() override {
    ScheduleTick();
    while (!RunHandlers()) {
    }
    control_.reset();
  }

  void Drain(double seconds, const std::string& why) override {
    asio::post(io_, [this, seconds, why] { BeginDrain(seconds, why); });
  }

  void Reload() override {
    asio::post(io_, [this] { ReloadNow(); });
  }

  int http_port() const override { return http_->port(); }
  std::string http_address() const override { return http_->address(); }

 private:
  RoutesContext MakeContext() {
    RoutesContext context;
    context.tokenizer_info = options_.tokenizer_info;
    context.api.limits = options_.dispatcher.limits;
    context.api.model_names = options_.model_names;
    context.api.tokenizer = tokenizer_.get();
    context.api.chat = chat_.get();
    context.api.known_formats = &known_formats_;
    context.api.catalogues = options_.catalogues.get();
    context.reload = [this] { return ReloadNow(); };
    context.api.tool_format = options_.tool_format;
    context.api.reasoning = options_.reasoning;
    context.api.sampling_defaults = &options_.sampling_defaults;
    context.api.own_bytes = tokenizer::OwnBytes(*tokenizer_);
    context.max_model_len = options_.dispatcher.max_model_len;
    context.max_body_bytes = options_.http.max_body_bytes;
    context.started_unix = std::chrono::duration_cast<std::chrono::seconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
    context.clock = &clock_;
    context.registry = &registry_;
    context.dispatcher = &dispatcher_;
    context.operations = &operations_;
    context.trace = &trace_;
    context.metrics = &metrics_;
    context.keys = &keys_;
    context.rate = &rate_;
    context.jobs = &jobs_;
    context.metrics_require_key = options_.metrics_require_key;
    context.web = options_.web;
    return context;
  }

  // True when the loop has ended. An exception of a handler ends only that handler. It is a bug, or
  // there is no memory, and the work of the handler may be incomplete; but otherwise all other
  // requests would end with the process. An HTTP session catches its own exceptions (http_session).
  bool RunHandlers() {
    try {
      io_.run();
      return true;
    } catch (const std::exception& e) {
      spdlog::critical("a handler of the event loop has thrown, please report this bug: {}",
                       e.what());
    } catch (...) {
      spdlog::critical("a handler of the event loop has thrown, please report this bug");
    }
    return false;
  }

  void AwaitSignal() {
    signals_.async_wait([this](boost::system::error_code ec, int signal) {
      if (ec) return;
      AwaitSignal();
      if (signal == SIGHUP) {
        ReloadNow();
        return;
      }
      const bool interrupt = signal == SIGINT;
      const bool again = dispatcher_.ending();
      BeginDrain(again       ? 0
                 : interrupt ? std::min(kInterruptDrain_s, options_.drain_timeout_s)
                             : options_.drain_timeout_s,
                 interrupt ? "SIGINT" : "SIGTERM");
    });
  }

  // The errors, which are logged too.
  std::vector<std::string> ReloadNow() {
    std::vector<std::string> errors;
    const auto failed = [&errors](const char* what, const absl::Status& status) {
      errors.emplace_back(status.message());
      spdlog::error("{} in use: {}", what, errors.back());
    };
    absl::StatusOr<ApiKeys> keys = ApiKeys::Load(options_.api_keys_file, options_.admin_keys_file);
    if (keys.ok()) {
      keys_ = *std::move(keys);
      spdlog::info("reloaded: {} keys", keys_.size());
    } else {
      failed("the old keys stay", keys.status());
    }
    if (const absl::Status tls = http_->ReloadTls(); !tls.ok())
      failed("the old certificate stays", tls);
    if (options_.catalogues == nullptr) return errors;
    for (const absl::Status& status : options_.catalogues->Reload())
      failed("the old catalogue stays", status);
    for (const auto& entry : options_.catalogues->entries())
      spdlog::info("catalogue {}: {} items, fingerprint {}", entry.name, entry.newest->items(),
                   catalogue::FingerprintText(entry.newest->fingerprint()));
    return errors;
  }

  void BeginDrain(double seconds, const std::string& why) {
    const double end = clock_.NowSeconds() + seconds;
    drain_end_s_ = dispatcher_.ending() ? std::min(drain_end_s_, end) : end;
    dispatcher_.BeginEnd(why);
    operations_.SetEnd(drain_end_s_);
  }

  void ScheduleTick() {
    tick_.expires_after(kTick);
    tick_.async_wait([this](boost::system::error_code ec) {
      if (ec) return;
      ScheduleTick();  // first, so that there is a next one whatever is thrown
      dispatcher_.Tick();
      operations_.Tick();
      trace_.Tick();
      if (dispatcher_.ending()) AdvanceDrain();
    });
  }

  void AdvanceDrain() {
    const double now = clock_.NowSeconds();
    if (farewell_end_s_ == 0) {
      if (!(dispatcher_.idle() && jobs_.idle()) && now < drain_end_s_) return;
      dispatcher_.FailAll({503, "draining", "the server is shutting down", "", 5});
      dispatcher_.StopNodes("the coordinator is shutting down");
      http_->StopAccepting();
      farewell_end_s_ = now + kFarewell_s;
      return;  // answers are still being written
    }
    if (now < drain_end_s_ && http_->writing()) return;
    if (AllNodesGone() || now >= farewell_end_s_) io_.stop();
  }

  bool AllNodesGone() const {
    const auto gone = [](const Node* node) { return node->state == NodeState::kLost; };
    const std::vector<const Node*> replicas = registry_.Replicas(), drafts = registry_.DraftNodes();
    return std::all_of(replicas.begin(), replicas.end(), gone) &&
           std::all_of(drafts.begin(), drafts.end(), gone);
  }

  const CoordinatorOptions options_;
  const SteadyClock clock_;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  const std::unique_ptr<tokenizer::ChatPrompt> chat_;
  KnownFormats known_formats_;
  Metrics metrics_;
  NodeRegistry registry_;
  Dispatcher dispatcher_;
  Operations operations_;
  ClusterTrace trace_;
  ApiKeys keys_;
  RateLimiter rate_;
  Routes routes_;
  asio::io_context io_{1};
  ParsePool jobs_{&io_};
  asio::steady_timer tick_;
  asio::signal_set signals_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<ControlLoop> control_;
  double drain_end_s_ = 0;
  double farewell_end_s_ = 0;  // 0: nodes have not been told to stop yet
};

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    const CoordinatorOptions& options, std::unique_ptr<tokenizer::Tokenizer> tokenizer,
    std::unique_ptr<tokenizer::ChatPrompt> chat) {
  auto coordinator =
      std::make_unique<CoordinatorImpl>(options, std::move(tokenizer), std::move(chat));
  COPPICE_RETURN_IF_ERROR(coordinator->Listen());
  return coordinator;
}

}  // namespace coppice::coordinator
