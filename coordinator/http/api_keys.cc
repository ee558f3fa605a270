#include "coordinator/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kMinKey = 16;
constexpr size_t kMaxName = 64;
constexpr char kBearer[] = "Bearer ";
constexpr char kWeight[] = "weight=";
constexpr double kLeastWeight = 0.01, kMostWeight = 100;

bool GoodName(absl::string_view name) {
  if (name.size() > kMaxName) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("._-", c)) return false;
  }
  return true;
}

bool Printable(absl::string_view key) {
  for (const char c : key) {
    if (!absl::ascii_isgraph(c)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<ApiKeys::Digest> ApiKeys::DigestOf(absl::string_view key) {
  Digest digest;
  unsigned size = 0;
  if (EVP_Digest(key.data(), key.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != digest.size()) {
    return absl::InternalError("OpenSSL cannot compute SHA-256");
  }
  return digest;
}

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& user_file, const std::string& admin_file) {
  ApiKeys keys;
  keys.users_need_keys_ = !user_file.empty();
  keys.admins_need_keys_ = !admin_file.empty();
  if (!user_file.empty()) COPPICE_RETURN_IF_ERROR(keys.ReadFile(user_file, /*admin=*/false));
  if (!admin_file.empty()) COPPICE_RETURN_IF_ERROR(keys.ReadFile(admin_file, /*admin=*/true));
  return keys;
}

absl::Status ApiKeys::ReadFile(const std::string& path, bool admin) {
  COPPICE_ASSIGN_OR_RETURN(std::string text, ReadRegularFile(path, kMostSettingsBytes));
  std::istringstream file(std::move(text));
  const size_t before = keys_.size();
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", what));
    };
    double weight = 1;
    if (words.size() > 1 && absl::ConsumePrefix(&words.back(), kWeight)) {
      if (!absl::SimpleAtod(words.back(), &weight) ||
          !(weight >= kLeastWeight && weight <= kMostWeight))
        return bad(absl::StrCat("weight is a number from ", kLeastWeight, " to ", kMostWeight));
      words.pop_back();
    }
    if (words.size() > 2) return bad("a line is KEY, KEY NAME or KEY NAME weight=N");
    if (words[0].size() < kMinKey)
      return bad(absl::StrCat("a key has at least ", kMinKey, " characters"));
    if (!Printable(words[0])) return bad("a key has printable ASCII characters only");
    const std::string name = words.size() == 2
                                 ? std::string(words[1])
                                 : absl::StrCat(admin ? "admin" : "user", "-line-", number);
    if (!GoodName(name)) return bad("a name is up to 64 of A-Z a-z 0-9 . _ -");
    COPPICE_ASSIGN_OR_RETURN(const Digest digest, DigestOf(words[0]));
    keys_.push_back({digest, name, admin, weight});
  }
  if (keys_.size() == before)
    return absl::InvalidArgumentError(absl::StrCat(path, ": it has no key"));
  return absl::OkStatus();
}

// Compares with every key, so that the time does not depend on the keys. If two keys are equal, the
// admin's counts.
const ApiKeys::Key* ApiKeys::Find(absl::string_view key) const {
  const absl::StatusOr<Digest> digest = DigestOf(key);
  if (!digest.ok()) return nullptr;
  const Key* found = nullptr;
  for (const Key& known : keys_) {
    const bool same = CRYPTO_memcmp(known.digest.data(), digest->data(), digest->size()) == 0;
    if (same && (found == nullptr || known.admin)) found = &known;
  }
  return found;
}

double ApiKeys::WeightOf(absl::string_view name) const {
  double most = 0;
  for (const Key& key : keys_) {
    if (key.name == name) most = std::max(most, key.weight);
  }
  return most > 0 ? most : 1;
}

std::optional<ApiError> ApiKeys::Check(const HttpRequest& request, Access access,
                                       std::string* caller) const {
  caller->clear();
  if (access == Access::kOpen) return std::nullopt;
  const bool admin = access == Access::kAdmin;
  if (admin && !admins_need_keys_) {
    if (!request.from_this_host) {
      return ApiError{403, "admin_only",
                      "only clients on the coordinator's host are admins (--admin_keys_file gives "
                      "keys to others)"};
    }
    if (!request.has_origin) return std::nullopt;
    return ApiError{403, "admin_only",
                    "a request with an Origin header may come from any web page, so it needs the "
                    "key of an admin (--admin_keys_file)"};
  }
  if (!admin && !users_need_keys_) return std::nullopt;
  const bool bearer = absl::StartsWithIgnoreCase(request.authorization, kBearer);
  absl::string_view sent = request.api_key;
  if (bearer) sent = absl::string_view(request.authorization).substr(sizeof(kBearer) - 1);
  if (!bearer && sent.empty()) {
    return ApiError{401, "missing_api_key",
                    "send the header Authorization: Bearer KEY, or X-Api-Key: KEY"};
  }
  const Key* key = Find(absl::StripAsciiWhitespace(sent));
  if (key == nullptr) return ApiError{401, "invalid_api_key", "the API key is not known"};
  *caller = key->name;
  if (admin && !key->admin)
    return ApiError{403, "admin_only", "this endpoint needs the key of an admin"};
  return std::nullopt;
}

}  // namespace coppice::coordinator
