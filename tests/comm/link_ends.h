// For tests: two ends of a SecureLink and the bytes between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "comm/secure_link.h"

namespace coppice::comm {

inline KeyBytes KeyOf(uint8_t value) {
  KeyBytes key;
  key.fill(value);
  return key;
}

// One end, and all that it has been told.
struct LinkEnd {
  LinkEnd(SecureLink::End end, uint8_t key, uint8_t ephemeral)
      : link(end, KeyOf(key), KeyOf(ephemeral)) {}

  // The bytes arrive as far as the link takes them. False: it has a fault.
  bool Take(absl::string_view bytes) {
    while (!bytes.empty()) {
      const absl::Span<uint8_t> room = link.Room();
      const size_t part = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), part);
      bytes.remove_prefix(part);
      if (!link.Arrived(part) || !Open()) return false;
    }
    return true;
  }
  bool Open() {
    while (const auto size = link.NextRecord()) {
      std::string content(*size, '\0');
      if (!link.OpenRecord(reinterpret_cast<uint8_t*>(content.data()))) return false;
      told += content;
      ++records;
    }
    return true;
  }
  std::string Seal(absl::string_view content) {
    std::string sealed;
    link.Seal(content, &sealed);
    return sealed;
  }

  SecureLink link;
  std::string told;
  int records = 0;
};

// A client and a server with these keys, before the first byte.
struct LinkPair {
  explicit LinkPair(uint8_t client_key = 1, uint8_t server_key = 1, uint8_t client_ephemeral = 11,
                    uint8_t server_ephemeral = 12)
      : client(SecureLink::End::kConnects, client_key, client_ephemeral),
        server(SecureLink::End::kListens, server_key, server_ephemeral) {}

  // The whole handshake. Returns what the client sent.
  std::string Greet() {
    std::string sent = client.link.TakeOutgoing();
    EXPECT_TRUE(server.Take(sent));
    EXPECT_TRUE(client.Take(server.link.TakeOutgoing()));
    const std::string proof = client.link.TakeOutgoing();
    EXPECT_TRUE(server.Take(proof));
    return sent + proof;
  }

  LinkEnd client, server;
};

}  // namespace coppice::comm
