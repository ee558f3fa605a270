#include "coordinator/http/tls.h"

#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice::coordinator {

absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> LoadTls(const std::string& cert_file,
                                                                   const std::string& key_file) {
  using boost::asio::ssl::context;
  for (const std::string& file : {cert_file, key_file})
    COPPICE_RETURN_IF_ERROR(CheckRegularFile(file, kMostSettingsBytes));
  const auto bad = [](const std::string& file, absl::string_view what, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", what, ": ", why));
  };
  auto tls = std::make_shared<context>(context::tls_server);
  tls->set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                   context::no_tlsv1 | context::no_tlsv1_1);
  // Forward secrecy and AEAD. TLS 1.3 has only such ciphers.
  if (SSL_CTX_set_cipher_list(tls->native_handle(), "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
    return absl::InternalError("TLS: none of its suites is known to the library");
  SSL_CTX_set_options(tls->native_handle(), SSL_OP_NO_RENEGOTIATION);
  // Otherwise a key with a password would ask for it on the terminal.
  tls->set_password_callback([](size_t, context::password_purpose) { return std::string(); });
  boost::system::error_code ec;
  tls->use_certificate_chain_file(cert_file, ec);
  if (ec) return bad(cert_file, "no certificate in PEM", ec.message());
  tls->use_private_key_file(key_file, context::pem, ec);
  if (ec)
    return bad(key_file, "no private key in PEM that belongs to the certificate", ec.message());
  if (SSL_CTX_check_private_key(tls->native_handle()) != 1)
    return bad(key_file, "the private key", "does not belong to the certificate");
  return tls;
}

}  // namespace coppice::coordinator
