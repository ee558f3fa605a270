#include "loadgen/client.h"

#include <sys/resource.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "loadgen/completion_stream.h"
#include "loadgen/sse_parser.h"

namespace coppice::loadgen {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using SteadyTime = std::chrono::steady_clock::time_point;
using ErrorCode = boost::system::error_code;
using asio::ip::tcp;

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMaxErrorBody = 64 << 10;

std::chrono::steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

struct Connection {
  explicit Connection(asio::io_context& io) : stream(io) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

// Raises the limit of open files as far as the system allows.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class LoadRun {
 public:
  LoadRun(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress)
      : plan_(plan),
        progress_(progress),
        timer_(io_),
        progress_timer_(io_),
        records_(plan.bodies.size()) {}

  absl::StatusOr<std::vector<RequestRecord>> Run() {
    ErrorCode error;
    tcp::resolver resolver(io_);
    endpoints_ = resolver.resolve(plan_.url.host, plan_.url.port, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat(plan_.url.HostHeader(), ": ", error.message()));
    }
    RaiseFileLimit();
    start_ = std::chrono::steady_clock::now();
    const auto rethrow = [](std::exception_ptr thrown) {
      if (thrown) std::rethrow_exception(thrown);
    };
    if (!records_.empty()) {
      asio::co_spawn(io_, ReleaseArrivals(), rethrow);
      asio::co_spawn(io_, ShowProgress(), rethrow);
      io_.run();
    }
    return std::move(records_);
  }

 private:
  double Now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  int total() const { return static_cast<int>(records_.size()); }

  asio::awaitable<void> ReleaseArrivals();
  asio::awaitable<void> ShowProgress();
  void StartReady();
  asio::awaitable<void> RunRequest(int k);
  asio::awaitable<ErrorCode> Connect(Connection& connection);
  // Sets *answered if a byte of the answer has arrived.
  asio::awaitable<ErrorCode> Exchange(Connection& connection, int k, bool* answered,
                                      bool* reusable);
  void Report() const;

  const LoadPlan& plan_;
  const std::function<void(const LoadProgress&)>& progress_;
  asio::io_context io_{1};
  asio::steady_timer timer_, progress_timer_;
  tcp::resolver::results_type endpoints_;
  SteadyTime start_;
  std::vector<RequestRecord> records_;
  std::deque<int> ready_;  // arrived and not yet sent
  std::vector<std::unique_ptr<Connection>> idle_;
  int running_ = 0, done_ = 0, failed_ = 0;
  int64_t output_tokens_ = 0;
};

asio::awaitable<void> LoadRun::ReleaseArrivals() {
  for (int k = 0; k < total(); ++k) {
    if (!plan_.arrivals_s.empty()) {
      records_[k].intended_s = plan_.arrivals_s[k];
      const SteadyTime due = start_ + Seconds(plan_.arrivals_s[k]);
      if (due > std::chrono::steady_clock::now()) {
        timer_.expires_at(due);
        co_await timer_.async_wait(asio::use_awaitable);
      }
    }
    ready_.push_back(k);
    StartReady();
  }
}

void LoadRun::StartReady() {
  while (!ready_.empty() && (plan_.max_concurrency == 0 || running_ < plan_.max_concurrency)) {
    const int k = ready_.front();
    ready_.pop_front();
    ++running_;
    asio::co_spawn(io_, RunRequest(k), [this, k](std::exception_ptr thrown) {
      if (thrown) std::rethrow_exception(thrown);
      --running_;
      ++done_;
      failed_ += records_[k].ok ? 0 : 1;
      output_tokens_ += records_[k].output_tokens;
      if (done_ == total()) progress_timer_.cancel();
      StartReady();
    });
  }
}

void LoadRun::Report() const {
  progress_({.total = total(),
             .done = done_,
             .running = running_,
             .failed = failed_,
             .output_tokens = output_tokens_,
             .elapsed_s = Now()});
}

asio::awaitable<void> LoadRun::ShowProgress() {
  while (done_ < total()) {
    Report();
    progress_timer_.expires_after(std::chrono::seconds(1));
    ErrorCode cancelled;
    co_await progress_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
  Report();
}

asio::awaitable<ErrorCode> LoadRun::Connect(Connection& connection) {
  ErrorCode error;
  co_await connection.stream.async_connect(endpoints_,
                                           asio::redirect_error(asio::use_awaitable, error));
  if (!error) {
    ErrorCode ignored;
    connection.stream.socket().set_option(tcp::no_delay(true), ignored);
  }
  co_return error;
}

asio::awaitable<void> LoadRun::RunRequest(int k) {
  RequestRecord& record = records_[k];
  record.sent_s = Now();
  if (plan_.arrivals_s.empty()) record.intended_s = record.sent_s;
  const SteadyTime deadline = std::chrono::steady_clock::now() + Seconds(plan_.timeout_s);
  ErrorCode error;
  const char* step = "connect";
  while (true) {
    std::unique_ptr<Connection> connection;
    const bool reused = !idle_.empty();
    if (reused) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      connection = std::make_unique<Connection>(io_);
    }
    connection->stream.expires_at(deadline);
    if (!reused) error = co_await Connect(*connection);
    if (error) break;
    step = "request";
    bool answered = false, reusable = false;
    error = co_await Exchange(*connection, k, &answered, &reusable);
    if (error && reused && !answered && error != beast::error::timeout) {
      error = {};
      continue;  // the server had closed the idle connection
    }
    if (reusable) {
      connection->stream.expires_never();
      idle_.push_back(std::move(connection));
    }
    break;
  }
  record.end_s = Now();
  record.timed_out = error == beast::error::timeout;
  if (record.timed_out) {
    record.error = absl::StrCat("timed out after ", plan_.timeout_s, " s");
  } else if (error && record.error.empty()) {
    record.error = absl::StrCat(step, ": ", error.message());
  }
  record.ok = record.error.empty();
}

asio::awaitable<ErrorCode> LoadRun::Exchange(Connection& connection, int k, bool* answered,
                                             bool* reusable) {
  RequestRecord& record = records_[k];
  ErrorCode error;
  http::request<http::string_body> request{http::verb::post, plan_.url.path + plan_.endpoint, 11};
  request.set(http::field::host, plan_.url.HostHeader());
  request.set(http::field::user_agent, "coppice-loadgen");
  request.set(http::field::content_type, "application/json");
  request.set(http::field::accept, "text/event-stream");
  request.body() = plan_.bodies[k];
  request.prepare_payload();
  co_await http::async_write(connection.stream, request,
                             asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return error;

  http::response_parser<http::buffer_body> response;
  response.body_limit(std::numeric_limits<uint64_t>::max());
  co_await http::async_read_header(connection.stream, connection.buffer, response,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return error;
  *answered = true;
  record.status = response.get().result_int();

  CompletionStream completion(&record);
  SseParser events;
  std::string error_body;
  std::vector<char> bytes(kReadBytes);
  while (!response.is_done()) {
    response.get().body().data = bytes.data();
    response.get().body().size = bytes.size();
    co_await http::async_read_some(connection.stream, connection.buffer, response,
                                   asio::redirect_error(asio::use_awaitable, error));
    if (error == http::error::need_buffer) error = {};
    if (error) co_return error;
    const std::string_view piece(bytes.data(), bytes.size() - response.get().body().size);
    if (record.status == 200) {
      const double now_s = Now();
      for (const std::string& data : events.Feed(piece)) completion.OnData(data, now_s);
      if (events.overflowed() && record.error.empty()) record.error = "event: too long";
    } else if (error_body.size() < kMaxErrorBody) {
      error_body += piece;
    }
  }
  if (record.status == 200) {
    completion.Finish();
  } else {
    record.error = ErrorText(error_body);
  }
  *reusable = response.get().keep_alive();
  co_return error;
}

asio::awaitable<absl::Status> Get(const BaseUrl& url, const std::string& path,
                                  const tcp::resolver::results_type& endpoints, double timeout_s,
                                  beast::tcp_stream& stream, std::string& body) {
  ErrorCode error;
  stream.expires_after(Seconds(timeout_s));
  co_await stream.async_connect(endpoints, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return absl::UnavailableError(error.message());
  http::request<http::empty_body> request{http::verb::get, url.path + path, 11};
  request.set(http::field::host, url.HostHeader());
  request.set(http::field::connection, "close");
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return absl::UnavailableError(error.message());
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  co_await http::async_read(stream, buffer, response,
                            asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return absl::UnavailableError(error.message());
  if (response.result_int() != 200) {
    co_return absl::UnavailableError(absl::StrCat("status ", response.result_int()));
  }
  body = std::move(response.body());
  co_return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<RequestRecord>> RunLoad(
    const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress) {
  return LoadRun(plan, progress).Run();
}

absl::StatusOr<std::string> HttpGet(const BaseUrl& url, const std::string& path, double timeout_s) {
  asio::io_context io(1);
  ErrorCode error;
  tcp::resolver resolver(io);
  const auto endpoints = resolver.resolve(url.host, url.port, error);
  absl::Status status = absl::OkStatus();
  std::string body;
  if (error) {
    status = absl::UnavailableError(error.message());
  } else {
    beast::tcp_stream stream(io);
    asio::co_spawn(io, Get(url, path, endpoints, timeout_s, stream, body),
                   [&](std::exception_ptr thrown, absl::Status result) {
                     if (thrown) std::rethrow_exception(thrown);
                     status = std::move(result);
                   });
    io.run();
  }
  if (status.ok()) return body;
  return absl::UnavailableError(
      absl::StrCat("http://", url.HostHeader(), url.path, path, ": ", status.message()));
}

}  // namespace coppice::loadgen
