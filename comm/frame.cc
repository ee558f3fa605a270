#include "comm/frame.h"

#include <cstring>

namespace coppice::comm {
namespace {

constexpr char kMagic[4] = {'C', 'O', 'P', 'P'};

void WriteLittleEndian(uint64_t value, int bytes, uint8_t* out) {
  for (int i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(value >> 8 * i);
}

uint32_t ReadLittleEndian(const uint8_t* in, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<uint32_t>(in[i]) << 8 * i;
  return value;
}

}  // namespace

uint32_t FrameKind(const std::string& type_name) {
  uint32_t hash = 2166136261u;
  for (unsigned char c : type_name) hash = (hash ^ c) * 16777619u;
  return hash;
}

void WriteFrameHeader(uint32_t kind, uint32_t body_bytes, uint8_t* header) {
  std::memcpy(header, kMagic, sizeof(kMagic));
  WriteLittleEndian(kProtocolVersion, 2, header + 4);
  WriteLittleEndian(0, 2, header + 6);
  WriteLittleEndian(kind, 4, header + 8);
  WriteLittleEndian(body_bytes, 4, header + 12);
}

FrameFault CheckFrame(const uint8_t* frame, size_t bytes, uint32_t kind, size_t max_body_bytes) {
  if (bytes > kFrameHeaderBytes + max_body_bytes) return FrameFault::kOversized;
  if (bytes < kFrameHeaderBytes || std::memcmp(frame, kMagic, sizeof(kMagic)) != 0) {
    return FrameFault::kMalformed;
  }
  if (ReadLittleEndian(frame + 4, 2) != kProtocolVersion) return FrameFault::kVersion;
  if (ReadLittleEndian(frame + 8, 4) != kind ||
      ReadLittleEndian(frame + 12, 4) != bytes - kFrameHeaderBytes) {
    return FrameFault::kMalformed;
  }
  return FrameFault::kNone;
}

FrameFault CheckFrameHeader(const uint8_t* header, size_t max_body_bytes, size_t* frame_bytes) {
  if (std::memcmp(header, kMagic, sizeof(kMagic)) != 0) return FrameFault::kMalformed;
  if (ReadLittleEndian(header + 4, 2) != kProtocolVersion) return FrameFault::kVersion;
  const size_t body = ReadLittleEndian(header + 12, 4);
  if (body > max_body_bytes) return FrameFault::kOversized;
  *frame_bytes = kFrameHeaderBytes + body;
  return FrameFault::kNone;
}

}  // namespace coppice::comm
