// The certificate of the HTTP server, for TLS 1.2 or newer with forward secrecy and AEAD. Loaded by
// http_server, at start and on SIGHUP.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace coppice::coordinator {

// cert_file: PEM, the server's certificate and then those that lead to its root. key_file: its
// private key, PEM, without a password. Errors name the file.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> LoadTls(const std::string& cert_file,
                                                                   const std::string& key_file);

}  // namespace coppice::coordinator
