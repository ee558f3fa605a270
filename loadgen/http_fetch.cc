#include "loadgen/http_fetch.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loadgen/http_exchange.h"

namespace coppice::loadgen {
namespace {

namespace asio = boost::asio;

class Fetch {
 public:
  Fetch(asio::io_context& io, const Route& route) : timer_(io), connection_(io, route, &bytes_) {}

  asio::awaitable<void> Run(const std::string& request, double timeout_s) {
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(timeout_s)));
    timer_.async_wait([this](ErrorCode cancelled) {
      if (cancelled) return;
      late_ = true;
      connection_.Close();
    });
    answer_.error = co_await connection_.Open();
    if (!answer_.error) {
      answer_ = co_await Exchange(connection_, request,
                                  [this](int, std::string_view piece) { body_ += piece; });
    }
    timer_.cancel();
    connection_.Close();
  }

  absl::StatusOr<std::string> Result() const {
    if (late_) return absl::UnavailableError("no answer in time");
    if (answer_.error) return absl::UnavailableError(answer_.error.message());
    if (answer_.status != 200)
      return absl::UnavailableError(absl::StrCat("status ", answer_.status));
    return body_;
  }

 private:
  ByteCount bytes_;
  asio::steady_timer timer_;
  Connection connection_;
  HttpAnswer answer_;
  std::string body_;
  bool late_ = false;
};

}  // namespace

absl::StatusOr<std::string> HttpFetch(const Servers& servers, size_t index, const std::string& path,
                                      const std::string& body, double timeout_s) {
  const BaseUrl& url = servers.urls[index];
  asio::io_context io(1);
  absl::StatusOr<Route> route = FindRoute(io, url, servers.insecure);
  if (!route.ok()) return route.status();
  Headers headers = servers.headers;
  headers.emplace_back("Connection", "close");
  const std::string request = RequestBytes(url, path, headers, body);
  Fetch fetch(io, *route);
  asio::co_spawn(io, fetch.Run(request, timeout_s), [](std::exception_ptr thrown) {
    if (thrown) std::rethrow_exception(thrown);
  });
  io.run();
  absl::StatusOr<std::string> result = fetch.Result();
  if (result.ok()) return result;
  return absl::UnavailableError(absl::StrCat(url.Text(), path, ": ", result.status().message()));
}

}  // namespace coppice::loadgen
