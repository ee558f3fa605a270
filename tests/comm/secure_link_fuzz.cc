// Any bytes of a stranger, in any pieces: neither end of a link becomes ready or yields content, and
// each ends or waits. After a right handshake: only what the other end sealed comes out. The first
// byte of an input says which end, after which part of the handshake, and the size of the pieces.
// fuzz.sh runs it with libFuzzer; a normal test runs the seeds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "comm/secure_link.h"

namespace coppice::comm {
namespace {

struct FuzzedEnd {
  SecureLink link;
  std::string told;

  FuzzedEnd(SecureLink::End end, uint8_t ephemeral) : link(end, Key(1), Key(ephemeral)) {}
  static KeyBytes Key(uint8_t value) {
    KeyBytes key;
    key.fill(value);
    return key;
  }
  bool Take(const std::string& bytes, size_t piece) {
    for (size_t at = 0; at < bytes.size();) {
      const absl::Span<uint8_t> room = link.Room();
      if (room.empty()) std::abort();
      const size_t part = std::min({room.size(), bytes.size() - at, piece});
      std::memcpy(room.data(), bytes.data() + at, part);
      at += part;
      if (!link.Arrived(part)) return false;
      while (const auto size = link.NextRecord()) {
        std::string content(*size, '\0');
        if (!link.OpenRecord(reinterpret_cast<uint8_t*>(content.data()))) return false;
        told += content;
      }
    }
    return true;
  }
};

void Fuzz(uint8_t how, const std::string& bytes) {
  FuzzedEnd client(SecureLink::End::kConnects, 11), server(SecureLink::End::kListens, 12);
  const size_t piece = 1 + (how >> 4) * 7;
  const int stage = how & 3;
  const bool to_client = (how & 4) != 0;
  const std::string hello = client.link.TakeOutgoing();
  if (stage > 0 && !server.Take(hello, 1000)) std::abort();
  if (stage > 1 && !client.Take(server.link.TakeOutgoing(), 1000)) std::abort();
  if (stage > 2 && !server.Take(client.link.TakeOutgoing(), 1000)) std::abort();
  FuzzedEnd& attacked = to_client ? client : server;
  const bool was_ready = attacked.link.ready();
  const bool lives = attacked.Take(bytes, piece);
  if (lives == (attacked.link.fault() != nullptr)) std::abort();
  if (attacked.link.ready() != was_ready || !attacked.told.empty()) std::abort();
}

}  // namespace
}  // namespace coppice::comm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  coppice::comm::Fuzz(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
