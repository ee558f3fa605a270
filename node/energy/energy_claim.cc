#include "node/energy/energy_claim.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sampling/rng.h"

namespace coppice::node {
namespace {

constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";  // the same in every container

// An abstract name: no file.
struct Name {
  sockaddr_un address = {};
  socklen_t length = 0;
  explicit Name(const std::string& text) {
    address.sun_family = AF_UNIX;
    const size_t bytes = std::min(text.size(), sizeof address.sun_path - 1);
    std::copy_n(text.data(), bytes, address.sun_path + 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

int NewSocket() { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

int Bind(const std::string& text) {
  const Name name(text);
  const int made = NewSocket();
  if (made < 0 || bind(made, name.get(), name.length) == 0) return made;
  close(made);
  return -1;
}

bool IsTaken(const std::string& text) {
  const Name name(text);
  const int made = NewSocket();
  if (made < 0) return false;
  const bool taken = connect(made, name.get(), name.length) == 0;
  close(made);
  return taken;
}

}  // namespace

uint64_t EnergyDomain(absl::string_view kind, absl::string_view place) {
  std::ifstream file(kBootId);
  const std::string host{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  uint64_t hash = sampling::kRootHash;
  for (const char c : absl::StrCat(host, "|", kind, "|", place))
    hash = sampling::Finalize(hash ^ static_cast<unsigned char>(c));
  return std::max<uint64_t>(hash, 1);
}

EnergyClaim::EnergyClaim(uint64_t domain, Claimant claimant)
    : leaders_(absl::StrFormat("coppice-energy-%016x-leader", domain)),
      own_(claimant == Claimant::kLeader ? leaders_
                                         : absl::StrFormat("coppice-energy-%016x-draft", domain)) {}

EnergyClaim::~EnergyClaim() {
  if (socket_ >= 0) close(socket_);
}

bool EnergyClaim::Holds() {
  if (socket_ < 0) socket_ = Bind(own_);
  return socket_ >= 0 && (own_ == leaders_ || !IsTaken(leaders_));
}

}  // namespace coppice::node
