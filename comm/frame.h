// The frame of the control plane: 16 bytes, little endian, before every serialized message.
//
//   0  magic "COPP"
//   4  u16 protocol version
//   6  u16 reserved, 0
//   8  u32 kind: FNV-1a of the message's full type name; detects a peer of another kind
//   12 u32 length of the body in bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace coppice::comm {

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 16;

// kForged: the bytes of an encrypted stream are not those that the peer sent.
enum class FrameFault { kNone, kMalformed, kOversized, kVersion, kForged };

uint32_t FrameKind(const std::string& type_name);
void WriteFrameHeader(uint32_t kind, uint32_t body_bytes, uint8_t* header);
// Checks a whole frame of `bytes` bytes. kNone: what follows the header is a body of this kind.
FrameFault CheckFrame(const uint8_t* frame, size_t bytes, uint32_t kind, size_t max_body_bytes);
// Checks the header of a frame in a byte stream. kNone: *frame_bytes is the length of the whole
// frame. Otherwise the start of the next frame is unknown.
FrameFault CheckFrameHeader(const uint8_t* header, size_t max_body_bytes, size_t* frame_bytes);

}  // namespace coppice::comm
