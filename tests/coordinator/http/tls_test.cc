// Which clients of TLS are served: handshakes in memory with a certificate that the test makes.
#include "coordinator/http/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

class TlsTest : public ::testing::Test {
 protected:
  // An RSA key, so that suites without forward secrecy are possible.
  void SetUp() override {
    EVP_PKEY* const key = EVP_RSA_gen(2048);
    X509* const cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    ASSERT_GT(X509_sign(cert, key, EVP_sha256()), 0);
    std::FILE* file = std::fopen(cert_file_.c_str(), "w");
    ASSERT_EQ(PEM_write_X509(file, cert), 1);
    std::fclose(file);
    file = std::fopen(key_file_.c_str(), "w");
    ASSERT_EQ(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
    const auto loaded = LoadTls(cert_file_, key_file_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    server_ = *loaded;
  }
  void TearDown() override {
    std::filesystem::remove(cert_file_);
    std::filesystem::remove(key_file_);
  }
  // The suite on which the server agrees with a client of this version and list; "" if it refuses.
  std::string Handshake(int version, const char* suites) {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    if (suites != nullptr) SSL_CTX_set_cipher_list(context, suites);
    SSL* const client = SSL_new(context);
    SSL* const server = SSL_new(server_->native_handle());
    BIO *client_end = nullptr, *server_end = nullptr;
    BIO_new_bio_pair(&client_end, 0, &server_end, 0);
    SSL_set_bio(client, client_end, client_end);
    SSL_set_bio(server, server_end, server_end);
    SSL_set_connect_state(client);
    SSL_set_accept_state(server);
    int of_client = 0, of_server = 0;
    for (int i = 0; i < 20 && (of_client != 1 || of_server != 1); ++i) {
      of_client = SSL_do_handshake(client);
      of_server = SSL_do_handshake(server);
    }
    const std::string suite =
        of_client == 1 && of_server == 1 ? SSL_CIPHER_get_name(SSL_get_current_cipher(client)) : "";
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(context);
    return suite;
  }

  const std::string cert_file_ = ::testing::TempDir() + absl::StrCat("tls_test_", getpid(), ".pem");
  const std::string key_file_ = cert_file_ + ".key";
  std::shared_ptr<boost::asio::ssl::context> server_;
};

TEST_F(TlsTest, OnlySuitesWithForwardSecrecyAndAeadAreServed) {
  EXPECT_NE(Handshake(TLS1_3_VERSION, nullptr), "");
  for (const char* good : {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384",
                           "ECDHE-RSA-CHACHA20-POLY1305"}) {
    EXPECT_EQ(Handshake(TLS1_2_VERSION, good), good);
  }
  for (const char* bad : {"AES128-SHA", "AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384",
                          "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384"}) {
    EXPECT_EQ(Handshake(TLS1_2_VERSION, bad), "");
  }
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  EXPECT_EQ(Handshake(TLS1_VERSION, nullptr), "");
  EXPECT_EQ(Handshake(TLS1_1_VERSION, nullptr), "");
}

}  // namespace
}  // namespace coppice::coordinator
