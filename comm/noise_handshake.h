// The handshake of direct:// connections in a cluster with a key:
// Noise_NNpsk0_25519_ChaChaPoly_SHA512 of the Noise Protocol Framework (Trevor Perrin, revision 34,
// 2018, sections 5, 7.5, 9 and 10). Both ends prove that they have the pre-shared key, and agree on
// keys that are new for every connection, so that a key that leaks later does not open traffic of
// today. No socket, no clock. Called by SecureLink. Thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "comm/cluster_key.h"

namespace coppice::comm {

inline constexpr size_t kTagBytes = 16;
// Messages of a handshake without payloads: an ephemeral public key and a tag.
inline constexpr size_t kHandshakeBytes = kKeyBytes + kTagBytes;

// One direction of a connection: ChaCha20-Poly1305 whose nonce counts the messages, so that one
// that is changed, repeated, left out or moved does not open.
class MessageCipher {
 public:
  MessageCipher() = default;
  explicit MessageCipher(const KeyBytes& key) : key_(key) {}
  ~MessageCipher();
  MessageCipher(const MessageCipher&) = default;
  MessageCipher& operator=(const MessageCipher&) = default;

  // Writes plain.size() + kTagBytes bytes to `sealed`, which does not overlap plain.
  void Seal(absl::string_view plain, absl::string_view associated, uint8_t* sealed);
  // Writes sealed.size() - kTagBytes bytes to `plain`. False, and `plain` is not to be used: it is
  // not the next message of the other end.
  bool Open(absl::string_view sealed, absl::string_view associated, uint8_t* plain);

 private:
  KeyBytes key_ = {};
  uint64_t count_ = 0;
};

class NoiseHandshake {
 public:
  enum class End { kConnects, kListens };
  struct Ciphers {
    MessageCipher sends, receives;
  };

  // prologue: what both ends must agree on besides the key. ephemeral: secret key of this
  // connection, random; not used for anything else.
  NoiseHandshake(End end, const KeyBytes& psk, absl::string_view prologue,
                 const KeyBytes& ephemeral);
  static KeyBytes RandomEphemeral();
  ~NoiseHandshake();
  NoiseHandshake(const NoiseHandshake&) = delete;
  NoiseHandshake& operator=(const NoiseHandshake&) = delete;

  // The connecting end writes the first message and reads the second; the listening end reads and
  // writes. nullopt: the other end has another key, or the message is damaged; the connection must
  // be closed.
  std::optional<std::string> Write(absl::string_view payload);
  std::optional<std::string> Read(absl::string_view message);  // returns its payload
  // After both messages.
  Ciphers Split() const;
  const std::array<uint8_t, 64>& hash() const { return hash_; }  // hash of everything exchanged

 private:
  using Digest = std::array<uint8_t, 64>;

  void MixHash(absl::string_view data);
  void MixKey(absl::string_view input);
  void MixEphemeral(const KeyBytes& public_key);
  bool MixShared();

  const End end_;
  Digest hash_, chaining_key_;
  MessageCipher cipher_;
  KeyBytes ephemeral_, public_, other_ = {};
  int messages_ = 0;  // written and read so far
};

}  // namespace coppice::comm
