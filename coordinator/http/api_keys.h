// Who may call: the keys of the API (docs/api.md 4), read from files, kept as SHA-256 digests. Used
// by routes for every request. Value type; event-loop thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

// Who may use an endpoint. An admin key is also a user key.
enum class Access { kOpen, kUser, kAdmin };

class ApiKeys {
 public:
  // Each line of a file is `KEY [NAME] [weight=N]`, or a comment that begins with #. "" = no file.
  // Errors name file and line, never a key.
  static absl::StatusOr<ApiKeys> Load(const std::string& user_file, const std::string& admin_file);

  // Without a file of user keys, users need none. Without a file of admin keys, only clients on
  // this host are admins, and no web page that a browser shows there. The error is 401 or 403.
  // A key comes as Authorization: Bearer KEY, else as X-Api-Key: KEY.
  // *caller receives the name of the key, "" if none was needed.
  std::optional<ApiError> Check(const HttpRequest& request, Access access,
                                std::string* caller) const;
  // The weight of the client with this name: the largest of its keys, 1 if none is known.
  double WeightOf(absl::string_view name) const;
  bool users_need_keys() const { return users_need_keys_; }
  size_t size() const { return keys_.size(); }

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Key {
    Digest digest;
    std::string name;
    bool admin = false;
    double weight = 1;
  };
  static absl::StatusOr<Digest> DigestOf(absl::string_view key);
  absl::Status ReadFile(const std::string& path, bool admin);
  const Key* Find(absl::string_view key) const;

  std::vector<Key> keys_;
  bool users_need_keys_ = false, admins_need_keys_ = false;
};

}  // namespace coppice::coordinator
