#include "comm/cluster_key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "comm/tcp_socket.h"

namespace coppice::comm {
namespace {

constexpr char kForm[] = "coppice-cluster-key-1 ";
constexpr size_t kMostFileBytes = 256;

static_assert(crypto_kdf_KEYBYTES == kKeyBytes && crypto_box_SEEDBYTES == kKeyBytes &&
              crypto_box_PUBLICKEYBYTES == kKeyBytes && crypto_box_SECRETKEYBYTES == kKeyBytes);

// The numbers of the derived keys. The meaning of a number never changes.
enum : uint64_t { kListenerSeed = 1, kConnectorSeed = 2, kLinkKey = 3 };

KeyBytes Derive(const KeyBytes& secret, uint64_t number) {
  KeyBytes derived;
  COPPICE_CHECK(crypto_kdf_derive_from_key(derived.data(), derived.size(), number, "coppice ",
                                           secret.data()) == 0);
  return derived;
}

CurvePair DerivePair(const KeyBytes& secret, uint64_t number) {
  KeyBytes seed = Derive(secret, number);
  CurvePair pair;
  COPPICE_CHECK(
      crypto_box_seed_keypair(pair.public_key.data(), pair.secret_key.data(), seed.data()) == 0);
  sodium_memzero(seed.data(), seed.size());
  return pair;
}

// OK if only this user and root can read or replace the file.
absl::Status CheckPrivate(const std::string& path, int fd) {
  struct stat about;
  if (fstat(fd, &about) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(about.st_mode)) {
    return absl::FailedPreconditionError(path + ": the cluster key must be a regular file");
  }
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": the cluster key belongs to user ",
                                                      about.st_uid, ", not to this one (",
                                                      geteuid(), ") or root"));
  }
  if ((about.st_mode & 077) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: other users can use the cluster key (mode %04o); chmod 600 it, and make "
                      "a new one if they may have read it",
                      path, about.st_mode & 07777));
}

}  // namespace

ClusterKey::ClusterKey(const KeyBytes& secret) {
  COPPICE_CHECK_MSG(sodium_init() >= 0, "libsodium does not start");
  listener_ = DerivePair(secret, kListenerSeed);
  connector_ = DerivePair(secret, kConnectorSeed);
  link_ = Derive(secret, kLinkKey);
}

ClusterKey::~ClusterKey() {
  sodium_memzero(&listener_, sizeof(listener_));
  sodium_memzero(&connector_, sizeof(connector_));
  sodium_memzero(link_.data(), link_.size());
}

absl::StatusOr<std::shared_ptr<const ClusterKey>> ClusterKey::Parse(absl::string_view text,
                                                                    const std::string& name) {
  text = absl::StripTrailingAsciiWhitespace(text);
  const bool begins = absl::ConsumePrefix(&text, kForm);
  KeyBytes secret;
  size_t bytes = 0;
  if (!begins || text.size() != 2 * kKeyBytes ||
      sodium_hex2bin(secret.data(), secret.size(), text.data(), text.size(), nullptr, &bytes,
                     nullptr) != 0 ||
      bytes != kKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": not a cluster key; expected one line of \"", kForm, "\" and ",
                     2 * kKeyBytes, " hexadecimal digits, as deploy/cluster_key.sh writes it"));
  }
  if (sodium_is_zero(secret.data(), secret.size())) {
    return absl::InvalidArgumentError(name + ": a cluster key of zeros protects nothing");
  }
  auto key = std::make_shared<const ClusterKey>(secret);
  sodium_memzero(secret.data(), secret.size());
  return key;
}

absl::StatusOr<std::shared_ptr<const ClusterKey>> ClusterKey::Load(const std::string& path) {
  if (path.empty()) return nullptr;
  // O_NONBLOCK: opening a pipe must not block the start.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.open()) {
    const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
  }
  COPPICE_RETURN_IF_ERROR(CheckPrivate(path, file.get()));
  std::array<char, kMostFileBytes> text;
  const ssize_t size = read(file.get(), text.data(), text.size());
  if (size < 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  auto key = Parse({text.data(), static_cast<size_t>(size)}, path);
  sodium_memzero(text.data(), text.size());
  return key;
}

}  // namespace coppice::comm
