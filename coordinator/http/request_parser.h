// One HTTP request from bytes as they arrive: its head, then its body, with the limits of
// docs/api.md 3.1. Used by http_session, and by the fuzzer. No I/O. Throws nothing but bad_alloc.
#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/http/http_server.h"

namespace coppice::coordinator {

class RequestParser : private boost::beast::http::basic_parser<true> {
 public:
  // Fills *request. Both outlive the parser.
  RequestParser(const HttpOptions* limits, HttpRequest* request);

  // Reads bytes that follow those already taken, up to the end of the head, and after that up to
  // the end of the body. Returns how many were taken; the others must be given again, followed by
  // more. Call it until done() or error().
  size_t Put(absl::string_view bytes);

  // Without an error.
  bool head_done() const { return is_header_done() && !error_; }
  bool done() const { return is_done() && !error_; }
  // The error that the client gets. After it nothing more is parsed.
  const std::optional<ApiError>& error() const { return error_; }

  // Nothing but empty lines has been taken.
  bool before_request_line() const { return in_request_line_ && !error_; }

  // Valid when the head is complete.
  bool keep_alive() const { return keep_alive_; }
  bool is_http_11() const { return version_ >= 11; }
  bool expects_continue() const { return expects_continue_; }
  // Bytes of the body that have not arrived, if the head says it.
  std::optional<uint64_t> body_left() const;

  // The rest of the body is parsed, but not kept.
  void DropBody() { drop_body_ = true; }

 private:
  using error_code = boost::beast::error_code;
  using beast_view = boost::beast::string_view;

  void Fail(int status, const char* code, const std::string& message);
  void FailMalformed(bool in_head, const std::string& why);
  void FailUri();
  void FailBody();
  void CheckLines(bool of_head, absl::string_view taken, size_t waiting);
  size_t PutVersion(absl::string_view bytes, error_code& ec);
  void CheckHost();
  void ReadField(boost::beast::http::field name, const std::string& name_text, std::string value);
  std::size_t TakeBody(beast_view bytes);

  // What basic_parser has found.
  void on_request_impl(boost::beast::http::verb, beast_view method, beast_view target, int version,
                       error_code&) override;
  void on_response_impl(int, beast_view, int, error_code&) override {}
  void on_field_impl(boost::beast::http::field name, beast_view name_text, beast_view value,
                     error_code&) override;
  void on_header_impl(error_code&) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast_view bytes, error_code&) override { return TakeBody(bytes); }
  void on_chunk_header_impl(std::uint64_t, beast_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast_view bytes, error_code&) override {
    return TakeBody(bytes);
  }
  void on_finish_impl(error_code&) override {}

  const HttpOptions& limits_;
  HttpRequest& request_;
  std::optional<ApiError> error_;
  std::optional<std::string> request_id_;  // X-Request-Id as the client gives it
  std::optional<std::string> host_;
  bool several_hosts_ = false, closes_ = false;
  bool other_expectation_ = false;  // Expect names another expectation than 100-continue
  bool in_request_line_ = true, keep_alive_ = false, expects_continue_ = false, drop_body_ = false;
  bool other_encoding_ = false;  // Transfer-Encoding names another encoding than chunked
  int version_ = 0;
  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;  // bytes of the body taken in this call of Put
};

std::string NewRequestId();

}  // namespace coppice::coordinator
