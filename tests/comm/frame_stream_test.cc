#include "comm/frame_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/tcp_socket.h"
#include "tests/comm/channel_ends.h"

namespace coppice::comm {
namespace {

constexpr size_t kMostBytes = 4 << 20;

proto::NodeMessage Goodbye(const std::string& reason) {
  proto::NodeMessage message;
  message.mutable_goodbye()->set_reason(reason);
  return message;
}

// A stream at one end of a connection. The test holds the other end.
class FrameStreamTest : public ::testing::Test {
 protected:
  FrameStreamTest() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    near_.Reset(fds[0]);
    far_.Reset(fds[1]);
  }
  absl::Status Write(const google::protobuf::MessageLite& message) {
    return stream_.Write(near_.get(), "the stream", message, message.ByteSizeLong());
  }
  absl::Status Queue(const google::protobuf::MessageLite& message) {  // writes without a connection
    return stream_.Write(-1, "the stream", message, message.ByteSizeLong());
  }
  void Arrive(const std::string& bytes) {
    ASSERT_EQ(send(far_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
  }
  std::string Next() {
    const absl::Span<const uint8_t> frame = stream_.Next();
    return std::string(frame.begin(), frame.end());
  }
  // The bytes that have arrived at the other end.
  std::string Left() {
    std::string all, some(1 << 16, '\0');
    for (ssize_t got; (got = recv(far_.get(), some.data(), some.size(), 0)) > 0;) {
      all.append(some, 0, got);
    }
    return all;
  }

  FileDescriptor near_, far_;
  FrameStream stream_{kMostBytes, /*max_queued_frames=*/3};
};

TEST_F(FrameStreamTest, AFrameIsThereWithItsLastByteAndNotBefore) {
  const std::string frame = GoodFrame(Beat(1));
  for (const char byte : frame) {
    EXPECT_EQ(Next(), "");
    Arrive(std::string(1, byte));
    EXPECT_TRUE(stream_.Read(near_.get()));
  }
  EXPECT_EQ(Next(), frame);
  EXPECT_EQ(Next(), "");
  EXPECT_TRUE(stream_.Read(near_.get()));  // nothing has arrived, which is not an error
  EXPECT_EQ(Next(), "");
}

TEST_F(FrameStreamTest, FramesCutAnywhereComeOutWhole) {
  std::mt19937_64 random(5);
  std::vector<std::string> frames;
  std::string bytes;
  for (int i = 0; i < 300; ++i) {  // some are larger than what one read takes
    const size_t most = i % 100 == 50 ? 3 << 20 : i % 10 == 0 ? 200000 : 300;
    frames.push_back(GoodFrame(Goodbye(std::string(random() % most, 'a' + i % 26))));
    bytes += frames.back();
  }
  size_t arrived = 0, next = 0;
  while (arrived < bytes.size()) {
    const size_t most = size_t{1} << random() % 19;
    const ssize_t sent = send(far_.get(), bytes.data() + arrived,
                              std::min(1 + random() % most, bytes.size() - arrived), MSG_NOSIGNAL);
    if (sent > 0) arrived += static_cast<size_t>(sent);
    if (sent > 0 && random() % 3 == 0) continue;  // so that one read takes two or more
    ASSERT_TRUE(stream_.Read(near_.get()));
    for (std::string frame = Next(); !frame.empty(); frame = Next()) {
      ASSERT_TRUE(frame == frames.at(next)) << next;
      ++next;
    }
  }
  while (next < frames.size()) {
    ASSERT_TRUE(stream_.Read(near_.get()));
    ASSERT_TRUE(Next() == frames[next]) << next;
    ++next;
  }
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(stream_.fault(), FrameFault::kNone);
}

TEST_F(FrameStreamTest, HalfAFrameIsKeptWhenItsBufferGrows) {
  const std::string small = GoodFrame(Beat(1));
  std::string numbers;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&numbers, i, " ");
  const std::string large = GoodFrame(Goodbye(numbers));
  Arrive(small + large.substr(0, 60000));  // nearly fills the initial buffer
  ASSERT_TRUE(stream_.Read(near_.get()));
  EXPECT_EQ(Next(), small);
  EXPECT_EQ(Next(), "");
  Arrive(large.substr(60000));
  ASSERT_TRUE(stream_.Read(near_.get()));
  EXPECT_TRUE(Next() == large);
}

TEST_F(FrameStreamTest, WhatTheSocketDoesNotTakeIsQueuedAndFollowsInOrder) {
  std::string expected, got;
  for (int i = 0; i < 3; ++i) {
    const auto message = Goodbye(std::string(1 << 20, 'a' + i));
    ASSERT_TRUE(Write(message).ok());
    EXPECT_TRUE(stream_.writing());
    expected += GoodFrame(message);
  }
  ASSERT_TRUE(stream_.Flush(near_.get()));
  EXPECT_TRUE(stream_.writing());  // there is no room to write yet
  while (stream_.writing()) {
    const std::string more = Left();
    ASSERT_FALSE(more.empty());
    got += more;
    ASSERT_TRUE(stream_.Flush(near_.get()));
  }
  ASSERT_TRUE(Write(Beat(1)).ok());
  EXPECT_FALSE(stream_.writing());
  got += Left();
  EXPECT_TRUE(got == expected + GoodFrame(Beat(1)));
}

TEST_F(FrameStreamTest, ASmallFrameDoesNotOvertakeAQueuedOne) {
  const auto large = Goodbye(std::string(1 << 20, 'x'));
  ASSERT_TRUE(Write(large).ok());
  std::string got = Left();  // now there is room, but half of the large one still waits
  ASSERT_TRUE(Write(Beat(1)).ok());
  while (stream_.writing()) {
    ASSERT_TRUE(stream_.Flush(near_.get()));
    got += Left();
  }
  EXPECT_TRUE(got + Left() == GoodFrame(large) + GoodFrame(Beat(1)));
}

TEST_F(FrameStreamTest, WithoutAConnectionFramesQueueUntilTheQueueIsFull) {
  std::string expected;
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(Queue(Beat(i)).ok());
    expected += GoodFrame(Beat(i));
  }
  const absl::Status full = Queue(Beat(3));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("the stream"), absl::string_view::npos);
  EXPECT_EQ(Left(), "");
  ASSERT_TRUE(stream_.Flush(near_.get()));
  EXPECT_FALSE(stream_.writing());
  EXPECT_EQ(Left(), expected);
}

TEST_F(FrameStreamTest, ResetForgetsHalfAFrameAndAllThatIsQueued) {
  const std::string frame = GoodFrame(Beat(1));
  Arrive(frame.substr(0, frame.size() / 2));
  ASSERT_TRUE(stream_.Read(near_.get()));
  EXPECT_EQ(Next(), "");
  ASSERT_TRUE(Write(Goodbye(std::string(1 << 20, 'x'))).ok());
  ASSERT_TRUE(stream_.writing());
  Left();
  stream_.Reset();
  EXPECT_FALSE(stream_.writing());
  ASSERT_TRUE(stream_.Flush(near_.get()));
  EXPECT_EQ(Left(), "");
  // A frame that is queued now must be written from its start.
  ASSERT_TRUE(Queue(Beat(2)).ok());
  ASSERT_TRUE(stream_.Flush(near_.get()));
  EXPECT_EQ(Left(), GoodFrame(Beat(2)));
  Arrive(frame);
  ASSERT_TRUE(stream_.Read(near_.get()));
  EXPECT_EQ(Next(), frame);
}

TEST_F(FrameStreamTest, AfterAFaultNothingIsUnderstoodUntilReset) {
  const std::string good = GoodFrame(Beat(1));
  std::string magic = good, version = good, oversized(kFrameHeaderBytes, '\0');
  magic[0] = 'X';
  version[5] = 1;
  WriteFrameHeader(1, kMostBytes + 1, reinterpret_cast<uint8_t*>(oversized.data()));
  const std::pair<std::string, FrameFault> cases[] = {{magic, FrameFault::kMalformed},
                                                      {version, FrameFault::kVersion},
                                                      {oversized, FrameFault::kOversized}};
  for (const auto& [bad, fault] : cases) {
    Arrive(good + bad + good);
    ASSERT_TRUE(stream_.Read(near_.get()));
    EXPECT_EQ(Next(), good);
    EXPECT_EQ(stream_.fault(), FrameFault::kNone);
    EXPECT_EQ(Next(), "");
    EXPECT_EQ(stream_.fault(), fault);
    EXPECT_EQ(Next(), "");
    stream_.Reset();
    EXPECT_EQ(stream_.fault(), FrameFault::kNone);
    EXPECT_EQ(Next(), "");
  }
}

TEST_F(FrameStreamTest, ABodyOfExactlyTheLimitIsNoFault) {
  std::string frame(kFrameHeaderBytes + kMostBytes, 'x');
  WriteFrameHeader(1, kMostBytes, reinterpret_cast<uint8_t*>(frame.data()));
  std::string got;
  for (size_t arrived = 0; got.empty() && arrived <= frame.size();) {
    const ssize_t sent = send(far_.get(), frame.data() + arrived, frame.size() - arrived, 0);
    if (sent > 0) arrived += static_cast<size_t>(sent);
    ASSERT_TRUE(stream_.Read(near_.get()));
    got = Next();
    ASSERT_EQ(stream_.fault(), FrameFault::kNone);
  }
  EXPECT_TRUE(got == frame);
}

TEST_F(FrameStreamTest, WhatArrivedBeforeTheEndCanStillBeTaken) {
  const std::string frame = GoodFrame(Beat(1));
  Arrive(frame + frame + frame.substr(0, 5));
  far_.Reset();
  while (stream_.Read(near_.get())) {
  }
  EXPECT_EQ(Next(), frame);
  EXPECT_EQ(Next(), frame);
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(stream_.fault(), FrameFault::kNone);
  EXPECT_FALSE(stream_.Read(near_.get()));
}

TEST_F(FrameStreamTest, WritingAfterTheEndIsUnavailable) {
  ASSERT_TRUE(Write(Goodbye(std::string(1 << 20, 'x'))).ok());
  ASSERT_TRUE(stream_.writing());
  far_.Reset();
  EXPECT_FALSE(stream_.Flush(near_.get()));
  stream_.Reset();
  const absl::Status status = Write(Beat(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("the stream"), absl::string_view::npos);
}

}  // namespace
}  // namespace coppice::comm
