#include "comm/frame.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice::comm {
namespace {

std::vector<uint8_t> Frame(uint32_t kind, uint32_t body) {
  std::vector<uint8_t> frame(kFrameHeaderBytes + body, 0);
  WriteFrameHeader(kind, body, frame.data());
  return frame;
}

TEST(FrameTest, GoodFramePasses) {
  const auto frame = Frame(7, 10);
  EXPECT_EQ(CheckFrame(frame.data(), frame.size(), 7, 10), FrameFault::kNone);
}

TEST(FrameTest, LayoutIsFixed) {
  const auto frame = Frame(0x11223344, 0x0102);
  const std::vector<uint8_t> header(frame.begin(), frame.begin() + kFrameHeaderBytes);
  EXPECT_EQ(header, (std::vector<uint8_t>{'C', 'O', 'P', 'P', 1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 2,
                                          1, 0, 0}));
}

TEST(FrameTest, EveryFaultIsTold) {
  auto frame = Frame(7, 10);
  EXPECT_EQ(CheckFrame(frame.data(), frame.size(), 7, 9), FrameFault::kOversized);
  EXPECT_EQ(CheckFrame(frame.data(), frame.size(), 8, 10), FrameFault::kMalformed);
  EXPECT_EQ(CheckFrame(frame.data(), frame.size() - 1, 7, 10), FrameFault::kMalformed);
  EXPECT_EQ(CheckFrame(Frame(7, 9).data(), kFrameHeaderBytes + 9 + 1, 7, 10),
            FrameFault::kMalformed);
  EXPECT_EQ(CheckFrame(frame.data(), 3, 7, 10), FrameFault::kMalformed);
  EXPECT_EQ(CheckFrame(frame.data(), 0, 7, 10), FrameFault::kMalformed);
  frame[5] = 1;
  EXPECT_EQ(CheckFrame(frame.data(), frame.size(), 7, 10), FrameFault::kVersion);
  frame[0] = 'c';
  EXPECT_EQ(CheckFrame(frame.data(), frame.size(), 7, 10), FrameFault::kMalformed);
}

TEST(FrameTest, KindsOfDifferentMessagesDiffer) {
  EXPECT_NE(FrameKind("coppice.proto.NodeMessage"), FrameKind("coppice.proto.DraftReply"));
}

}  // namespace
}  // namespace coppice::comm
