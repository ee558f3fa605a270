#include "coordinator/message/call_ids.h"

#include <openssl/sha.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace coppice::coordinator {

std::string CallId(CallIds ids, const std::string& seed, const std::string& name, size_t index) {
  if (ids == CallIds::kNamed) return absl::StrCat("functions.", name, ":", index);
  const std::string text = absl::StrCat(seed, "/", index);
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash);
  if (ids == CallIds::kHex) {
    std::string id = "call_";
    for (size_t i = 0; i < 12; ++i) absl::StrAppend(&id, absl::Hex(hash[i], absl::kZeroPad2));
    return id;
  }
  constexpr absl::string_view kCharacters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id;
  for (size_t i = 0; i < 9; ++i) id += kCharacters[hash[i] % kCharacters.size()];
  return id;
}

}  // namespace coppice::coordinator
