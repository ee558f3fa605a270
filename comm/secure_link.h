// One end of an authenticated and encrypted byte stream. First the handshake, then records: two
// bytes of length (big endian) and a sealed message of the handshake's ciphers. The connecting end
// proves with an empty record that its first message was not a recording. Up to then not a byte of
// the other end is used for anything else. Called by FrameStream, which owns the socket.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "comm/cluster_key.h"
#include "comm/noise_handshake.h"

namespace coppice::comm {

class SecureLink {
 public:
  using End = NoiseHandshake::End;
  // Sizes: a handshake message with its length field; an empty record, which proves the key.
  static constexpr size_t kHelloBytes = 2 + kHandshakeBytes;
  static constexpr size_t kProofBytes = 2 + kTagBytes;
  static constexpr size_t kMostSealed = 65535;  // bytes of a sealed message
  static constexpr size_t kMostPlain = kMostSealed - kTagBytes;

  SecureLink(End end, const KeyBytes& psk,
             const KeyBytes& ephemeral = NoiseHandshake::RandomEphemeral());

  // Both ends have proved that they have the key: records may be sealed and opened.
  bool ready() const { return stage_ == Stage::kReady; }
  // Why the connection must be closed; nullptr when it need not be.
  const char* fault() const { return fault_; }

  // Where the next bytes from the socket go; never empty. Until ready() no more than the handshake
  // still needs: 50 or 18 bytes.
  absl::Span<uint8_t> Room();
  // `bytes` of the room have been filled. False: fault() is set.
  bool Arrived(size_t bytes);
  // What must be sent before anything else; empty most of the time. Forgets it.
  std::string TakeOutgoing();

  // The length of the next whole record's content; nullopt when none has arrived.
  std::optional<size_t> NextRecord() const;
  // Writes that content to `plain`. False: fault() is set.
  bool OpenRecord(uint8_t* plain);
  // Appends records with this content to *records.
  void Seal(absl::string_view plain, std::string* records);

 private:
  enum class Stage { kHello, kAnswer, kProof, kReady };

  size_t Wanted() const;
  bool Fail(const char* why);
  bool OnMessage(absl::string_view message);

  Stage stage_;
  std::unique_ptr<NoiseHandshake> handshake_;  // used until the handshake is over
  NoiseHandshake::Ciphers ciphers_;
  std::string outgoing_;
  const char* fault_ = nullptr;
  uint8_t early_[kHelloBytes];          // receives the handshake
  std::unique_ptr<uint8_t[]> records_;  // [kRecordsBytes], from ready() on
  size_t begin_ = 0, end_ = 0;          // bytes [begin_, end_) wait in early_ or in records_
};

}  // namespace coppice::comm
