#include "loadgen/http_exchange.h"

#include <boost/asio/buffers_iterator.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"

namespace coppice::loadgen {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

}  // namespace

// A body of Beast that hands each piece on and keeps nothing.
struct PieceBody {
  using value_type = std::function<void(std::string_view)>;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, ErrorCode& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, ErrorCode& error) {
      error = {};
      size_t count = 0;
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers);
           ++it) {
        const asio::const_buffer piece = *it;
        body_(std::string_view(static_cast<const char*>(piece.data()), piece.size()));
        count += piece.size();
      }
      return count;
    }
    void finish(ErrorCode& error) { error = {}; }

   private:
    value_type& body_;
  };
};

std::string RequestBytes(const BaseUrl& url, const std::string& path, const Headers& headers,
                         const std::string& body) {
  std::string bytes = absl::StrCat(body.empty() ? "GET " : "POST ", url.path, path,
                                   " HTTP/1.1\r\nHost: ", url.HostHeader(), "\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&bytes, name, ": ", value, "\r\n");
  if (!body.empty()) {
    absl::StrAppend(&bytes, "Content-Type: application/json\r\nContent-Length: ", body.size(),
                    "\r\n");
  }
  absl::StrAppend(&bytes, "\r\n", body);
  return bytes;
}

asio::awaitable<HttpAnswer> Exchange(
    Connection& connection, const std::string& request,
    const std::function<void(int status, std::string_view piece)>& on_body) {
  HttpAnswer answer;
  answer.error = co_await connection.Write(request);
  if (answer.error) co_return answer;
  http::response_parser<PieceBody> parser;
  parser.eager(true);
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  parser.get().body() = [&](std::string_view piece) { on_body(parser.get().result_int(), piece); };
  while (!parser.is_done()) {
    ErrorCode error = co_await connection.Read();
    const bool ended = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
    if (ended) {
      error = {};
      if (!parser.got_some()) error = http::error::end_of_stream;
      if (!error) parser.put_eof(error);
    } else if (!error) {
      connection.buffer().consume(parser.put(connection.buffer().data(), error));
      if (error == http::error::need_more) error = {};
    }
    if (parser.is_header_done()) answer.status = static_cast<int>(parser.get().result_int());
    if (error) {
      answer.error = error;
      co_return answer;
    }
  }
  answer.status = static_cast<int>(parser.get().result_int());
  answer.reusable = parser.get().keep_alive() && connection.buffer().size() == 0;
  co_return answer;
}

}  // namespace coppice::loadgen
