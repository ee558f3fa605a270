#include "comm/noise_handshake.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::comm {
namespace {

constexpr char kProtocol[] = "Noise_NNpsk0_25519_ChaChaPoly_SHA512";
using Digest = std::array<uint8_t, 64>;

static_assert(crypto_auth_hmacsha512_BYTES == 64 && crypto_hash_sha512_BYTES == 64 &&
              crypto_scalarmult_BYTES == kKeyBytes && crypto_scalarmult_SCALARBYTES == kKeyBytes &&
              crypto_aead_chacha20poly1305_ietf_ABYTES == kTagBytes);

const uint8_t* Bytes(absl::string_view data) {
  return reinterpret_cast<const uint8_t*>(data.data());
}
template <size_t n>
absl::string_view View(const std::array<uint8_t, n>& data) {
  return {reinterpret_cast<const char*>(data.data()), n};
}

Digest Hmac(const Digest& key, absl::string_view data) {
  Digest digest;
  crypto_auth_hmacsha512_state state;
  crypto_auth_hmacsha512_init(&state, key.data(), key.size());
  crypto_auth_hmacsha512_update(&state, Bytes(data), data.size());
  crypto_auth_hmacsha512_final(&state, digest.data());
  sodium_memzero(&state, sizeof(state));
  return digest;
}

// Noise 4.3: HKDF(chaining_key, input, 3). Two outputs are the first two.
std::array<Digest, 3> Hkdf(const Digest& chaining_key, absl::string_view input) {
  const Digest key = Hmac(chaining_key, input);
  std::array<Digest, 3> outputs;
  outputs[0] = Hmac(key, "\x01");
  outputs[1] = Hmac(key, absl::StrCat(View(outputs[0]), "\x02"));
  outputs[2] = Hmac(key, absl::StrCat(View(outputs[1]), "\x03"));
  return outputs;
}

KeyBytes KeyOf(const Digest& digest) {
  KeyBytes key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

// Noise 12.3: 32 zero bits, then the count in little endian.
std::array<uint8_t, 12> Nonce(uint64_t count) {
  std::array<uint8_t, 12> nonce = {};
  for (int i = 0; i < 8; ++i) nonce[4 + i] = static_cast<uint8_t>(count >> 8 * i);
  return nonce;
}

}  // namespace

MessageCipher::~MessageCipher() { sodium_memzero(key_.data(), key_.size()); }

void MessageCipher::Seal(absl::string_view plain, absl::string_view associated, uint8_t* sealed) {
  const auto nonce = Nonce(count_++);
  crypto_aead_chacha20poly1305_ietf_encrypt(sealed, nullptr, Bytes(plain), plain.size(),
                                            Bytes(associated), associated.size(), nullptr,
                                            nonce.data(), key_.data());
}

bool MessageCipher::Open(absl::string_view sealed, absl::string_view associated, uint8_t* plain) {
  const auto nonce = Nonce(count_);
  if (crypto_aead_chacha20poly1305_ietf_decrypt(plain, nullptr, nullptr, Bytes(sealed),
                                                sealed.size(), Bytes(associated), associated.size(),
                                                nonce.data(), key_.data()) != 0) {
    return false;
  }
  ++count_;
  return true;
}

NoiseHandshake::NoiseHandshake(End end, const KeyBytes& psk, absl::string_view prologue,
                               const KeyBytes& ephemeral)
    : end_(end), hash_{}, ephemeral_(ephemeral) {
  static_assert(sizeof(kProtocol) - 1 <= sizeof(hash_));
  // Initialises once and picks the fastest code.
  COPPICE_CHECK_MSG(sodium_init() >= 0, "libsodium does not start");
  std::memcpy(hash_.data(), kProtocol, sizeof(kProtocol) - 1);
  chaining_key_ = hash_;
  MixHash(prologue);
  COPPICE_CHECK(crypto_scalarmult_base(public_.data(), ephemeral_.data()) == 0);
  // "psk": MixKeyAndHash
  auto outputs = Hkdf(chaining_key_, View(psk));
  chaining_key_ = outputs[0];
  MixHash(View(outputs[1]));
  cipher_ = MessageCipher(KeyOf(outputs[2]));
  sodium_memzero(outputs.data(), sizeof(outputs));
}

KeyBytes NoiseHandshake::RandomEphemeral() {
  KeyBytes ephemeral;
  randombytes_buf(ephemeral.data(), ephemeral.size());
  return ephemeral;
}

NoiseHandshake::~NoiseHandshake() {
  sodium_memzero(chaining_key_.data(), chaining_key_.size());
  sodium_memzero(ephemeral_.data(), ephemeral_.size());
}

void NoiseHandshake::MixHash(absl::string_view data) {
  crypto_hash_sha512_state state;
  crypto_hash_sha512_init(&state);
  crypto_hash_sha512_update(&state, hash_.data(), hash_.size());
  crypto_hash_sha512_update(&state, Bytes(data), data.size());
  crypto_hash_sha512_final(&state, hash_.data());
}

void NoiseHandshake::MixKey(absl::string_view input) {
  auto outputs = Hkdf(chaining_key_, input);
  chaining_key_ = outputs[0];
  cipher_ = MessageCipher(KeyOf(outputs[1]));
  sodium_memzero(outputs.data(), sizeof(outputs));
}

// "e" of a handshake with a pre-shared key (Noise 9.2).
void NoiseHandshake::MixEphemeral(const KeyBytes& public_key) {
  MixHash(View(public_key));
  MixKey(View(public_key));
}

// "ee". False for a public key of small order, whose secret everyone knows.
bool NoiseHandshake::MixShared() {
  KeyBytes shared;
  if (crypto_scalarmult(shared.data(), ephemeral_.data(), other_.data()) != 0) return false;
  MixKey(View(shared));
  sodium_memzero(shared.data(), shared.size());
  return true;
}

std::optional<std::string> NoiseHandshake::Write(absl::string_view payload) {
  COPPICE_CHECK(messages_ == (end_ == End::kConnects ? 0 : 1));
  MixEphemeral(public_);
  if (messages_++ == 1 && !MixShared()) return std::nullopt;
  std::string message(View(public_));
  message.resize(kHandshakeBytes + payload.size());
  auto* sealed = reinterpret_cast<uint8_t*>(message.data()) + kKeyBytes;
  cipher_.Seal(payload, View(hash_), sealed);
  MixHash(absl::string_view(message).substr(kKeyBytes));
  return message;
}

std::optional<std::string> NoiseHandshake::Read(absl::string_view message) {
  COPPICE_CHECK(messages_ == (end_ == End::kConnects ? 1 : 0));
  if (message.size() < kHandshakeBytes) return std::nullopt;
  std::memcpy(other_.data(), message.data(), kKeyBytes);
  MixEphemeral(other_);
  if (messages_++ == 1 && !MixShared()) return std::nullopt;
  const absl::string_view sealed = message.substr(kKeyBytes);
  std::string payload(sealed.size() - kTagBytes, '\0');
  if (!cipher_.Open(sealed, View(hash_), reinterpret_cast<uint8_t*>(payload.data()))) {
    return std::nullopt;
  }
  MixHash(sealed);
  return payload;
}

NoiseHandshake::Ciphers NoiseHandshake::Split() const {
  COPPICE_CHECK(messages_ == 2);
  const auto outputs = Hkdf(chaining_key_, "");
  const MessageCipher first(KeyOf(outputs[0])), second(KeyOf(outputs[1]));
  if (end_ == End::kConnects) return {.sends = first, .receives = second};
  return {.sends = second, .receives = first};
}

}  // namespace coppice::comm
