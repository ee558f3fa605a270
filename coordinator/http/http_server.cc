#include "coordinator/http/http_server.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <utility>
// Asio 1.74's awaitable uses std::exchange without including it.
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/http/http_session.h"
#include "coordinator/http/tls.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int kRefused = 64;  // connections above the limit that still receive a refusal
constexpr double kLogEvery_s = 5;
constexpr uint64_t kOtherFiles = 256;  // other open files besides kRefused: nodes, logs, models

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(asio::io_context* io, const HttpOptions& options, const Clock* clock, HttpApp* app,
                 ParsePool* jobs)
      : acceptor_(*io), retry_(*io), state_(std::make_shared<HttpServerState>(options)) {
    state_->clock = clock;
    state_->app = app;
    state_->jobs = jobs;
  }

  absl::Status Listen(const tcp::endpoint& endpoint) {
    boost::system::error_code ec;
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", state_->options.listen, ": ", ec.message()));
    }
    Accept();
    return absl::OkStatus();
  }

  int port() const override { return acceptor_.local_endpoint().port(); }
  std::string address() const override {
    const tcp::endpoint endpoint = acceptor_.local_endpoint();
    const std::string host = endpoint.address().to_string();
    return endpoint.address().is_v6() ? absl::StrCat("[", host, "]:", endpoint.port())
                                      : absl::StrCat(host, ":", endpoint.port());
  }
  bool only_this_host() const override {
    return acceptor_.local_endpoint().address().is_loopback();
  }
  bool writing() const override { return state_->writing > 0; }
  absl::Status ReloadTls() override {
    const HttpOptions& options = state_->options;
    if (options.tls_cert_file.empty()) return absl::OkStatus();
    COPPICE_ASSIGN_OR_RETURN(state_->tls, LoadTls(options.tls_cert_file, options.tls_key_file));
    return absl::OkStatus();
  }
  void StopAccepting() override {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted) return;
      if (ec) return AcceptAgain(ec);
      Take(std::move(socket));
      Accept();
    });
  }

  void Take(tcp::socket socket) {
    const int max = state_->options.max_connections;
    const bool full = state_->connections >= max && !state_->MakeRoom();
    if (full && state_->connections >= max + kRefused) return;  // closed without a refusal
    try {
      boost::system::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      ServeConnection(state_, std::move(socket), full);
    } catch (const std::exception& e) {  // no memory, or an error of the TLS library
      LogFailure(e.what());
    }
  }

  // Most likely there is no file descriptor left. A connection that waits for a request gives its
  // own up.
  void AcceptAgain(const boost::system::error_code& ec) {
    LogFailure(ec.message());
    if (ec == asio::error::no_descriptors && state_->MakeRoom()) return Accept();
    retry_.expires_after(std::chrono::milliseconds(50));
    retry_.async_wait([this](boost::system::error_code error) {
      if (!error) Accept();
    });
  }

  void LogFailure(const std::string& why) {
    ++failures_;
    const double now_s = state_->clock->NowSeconds();
    if (now_s < next_log_s_) return;
    spdlog::warn("accept: {} ({} times since the last such line)", why, failures_);
    failures_ = 0;
    next_log_s_ = now_s + kLogEvery_s;
  }

  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::shared_ptr<HttpServerState> state_;
  int failures_ = 0;  // failures since the last log line
  double next_log_s_ = 0;
};

HttpOptions FitToProcess(HttpOptions options) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return options;
  const int fitting = ConnectionsFor(options.max_connections, limit.rlim_cur);
  if (fitting < options.max_connections) {
    spdlog::warn("max_connections {}: this process may open {} files (ulimit -n), so it is {}",
                 options.max_connections, limit.rlim_cur, fitting);
  }
  options.max_connections = fitting;
  return options;
}

absl::StatusOr<tcp::endpoint> Resolve(asio::io_context* io, const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: want address:port, got '", listen, "'"));
  }
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  tcp::resolver resolver(*io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
  if (ec || found.begin() == found.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: cannot resolve '", host, "': ", ec.message()));
  }
  return found.begin()->endpoint();
}

}  // namespace

int ConnectionsFor(int wanted, uint64_t max_open_files) {
  const uint64_t room = max_open_files - std::min(kOtherFiles, max_open_files / 2);
  return static_cast<int>(std::clamp<uint64_t>(room, 1, wanted));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(asio::io_context* io,
                                                              const HttpOptions& options,
                                                              const Clock* clock, HttpApp* app,
                                                              ParsePool* jobs) {
  COPPICE_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(io, options.listen));
  auto server = std::make_unique<HttpServerImpl>(io, FitToProcess(options), clock, app, jobs);
  COPPICE_RETURN_IF_ERROR(server->ReloadTls());
  COPPICE_RETURN_IF_ERROR(server->Listen(endpoint));
  return server;
}

}  // namespace coppice::coordinator
