// The secret that all processes of a cluster share, and the keys derived from it. Only processes
// with the file may take part in the cluster. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::comm {

inline constexpr size_t kKeyBytes = 32;
using KeyBytes = std::array<uint8_t, kKeyBytes>;

// An X25519 key pair.
struct CurvePair {
  KeyBytes public_key, secret_key;
};

class ClusterKey {
 public:
  // Reads a file of one line: "coppice-cluster-key-1 " and 64 hexadecimal digits
  // (deploy/cluster_key.sh makes one). nullptr for "": no key. Errors name the file: NotFound,
  // FailedPrecondition when others can read it or it belongs to another user, InvalidArgument when
  // it has another form.
  static absl::StatusOr<std::shared_ptr<const ClusterKey>> Load(const std::string& path);
  // The secret of a text of that form; `name` is for the error.
  static absl::StatusOr<std::shared_ptr<const ClusterKey>> Parse(absl::string_view text,
                                                                 const std::string& name);

  explicit ClusterKey(const KeyBytes& secret);
  ~ClusterKey();  // overwrites the keys
  ClusterKey(const ClusterKey&) = delete;
  ClusterKey& operator=(const ClusterKey&) = delete;

  // ZeroMQ: the key pair of the listening side, and that of the connecting side.
  const CurvePair& listener() const { return listener_; }
  const CurvePair& connector() const { return connector_; }
  // The pre-shared key of direct:// connections.
  const KeyBytes& link() const { return link_; }

 private:
  CurvePair listener_, connector_;
  KeyBytes link_;
};

}  // namespace coppice::comm
