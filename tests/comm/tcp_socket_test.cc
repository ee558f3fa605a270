#include "comm/tcp_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/comm/raw_peer.h"

namespace coppice::comm {
namespace {

using ::testing::HasSubstr;

TEST(ResolveEndpointTest, TakesHostsAndPorts) {
  for (const char* good :
       {"direct://127.0.0.1:7100", "direct://[::1]:7100", "direct://localhost:7100"}) {
    for (bool listen : {false, true}) {
      const auto address = ResolveEndpoint(good, listen);
      ASSERT_TRUE(address.ok()) << address.status();
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address->storage);
      EXPECT_EQ(ntohs(v4->sin_port), 7100) << good;  // both families have it at one place
    }
  }
  EXPECT_TRUE(ResolveEndpoint("direct://*:*", true).ok());
}

TEST(ResolveEndpointTest, NamesWhatIsNoAddress) {
  for (const char* bad : {"tcp://127.0.0.1:7100", "direct://", "direct://127.0.0.1", "direct://:1",
                          "direct://127.0.0.1:", "direct://127.0.0.1:-1",
                          "direct://127.0.0.1:65536", "direct://127.0.0.1:7x"}) {
    for (bool listen : {false, true}) {
      const auto address = ResolveEndpoint(bad, listen);
      EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_THAT(std::string(address.status().message()), HasSubstr(bad));
    }
  }
  for (const char* port : {"*", "0"}) {  // any port, which only a listener may use
    EXPECT_TRUE(ResolveEndpoint(std::string("direct://127.0.0.1:") + port, true).ok());
    EXPECT_FALSE(ResolveEndpoint(std::string("direct://127.0.0.1:") + port, false).ok());
  }
}

// Waits until connecting has ended. Returns 0 or an errno.
int Outcome(const FileDescriptor& fd) {
  pollfd waiting = {fd.get(), POLLOUT, 0};
  EXPECT_EQ(poll(&waiting, 1, 5000), 1);
  return ConnectError(fd.get());
}

TEST(TcpSocketTest, ConnectingSucceedsFailsOrMeetsItself) {
  std::string bound;
  const auto listener = ListenTcp("direct://127.0.0.1:*", &bound);
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto fd = StartConnectTcp(*ResolveEndpoint(bound, false), bound);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(Outcome(*fd), 0);

  FileDescriptor itself(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = LoopbackAddress(0);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(itself.get(), generic, length), 0);
  ASSERT_EQ(getsockname(itself.get(), generic, &length), 0);
  const std::string nobody = absl::StrCat("direct://127.0.0.1:", ntohs(address.sin_port));
  fd = StartConnectTcp(*ResolveEndpoint(nobody, false), nobody);
  if (fd.ok()) {
    EXPECT_EQ(Outcome(*fd), ECONNREFUSED);
  } else {
    EXPECT_THAT(std::string(fd.status().message()), HasSubstr(nobody));
  }
  ASSERT_EQ(connect(itself.get(), generic, length), 0);
  EXPECT_EQ(Outcome(itself), ECONNREFUSED);
}

TEST(TcpSocketTest, ALocalClientFindsTheListenerOfItsAddressOnly) {
  std::string one, other;
  const auto listener = ListenTcp("direct://127.0.0.1:*", &one);
  const auto second = ListenTcp("direct://127.0.0.1:*", &other);
  ASSERT_TRUE(listener.ok() && second.ok());
  const auto connect = [](const std::string& to) {
    return ConnectLocal(*ResolveEndpoint(to, false));
  };
  EXPECT_FALSE(connect(one).open());
  FileDescriptor local = ListenLocal(one);
  ASSERT_TRUE(local.open());
  EXPECT_FALSE(ListenLocal(one).open());  // there is already one
  const FileDescriptor fd = connect(one);
  EXPECT_TRUE(fd.open());
  EXPECT_EQ(Outcome(fd), 0);
  EXPECT_FALSE(connect(other).open());
  local.Reset();
  EXPECT_FALSE(connect(one).open());
}

bool HostHasIpv6() {
  const FileDescriptor fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  return fd.open() && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

TEST(TcpSocketTest, ListensAtIpv6OrSaysThatTheHostHasNone) {
  std::string bound;
  const auto listener = ListenTcp("direct://[::1]:*", &bound);
  if (!HostHasIpv6()) {
    ASSERT_FALSE(listener.ok());
    EXPECT_THAT(std::string(listener.status().message()), HasSubstr("direct://[::1]:*"));
    return;
  }
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_THAT(bound, testing::MatchesRegex("direct://\\[::1\\]:[0-9]+"));
  auto fd = StartConnectTcp(*ResolveEndpoint(bound, false), bound);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(Outcome(*fd), 0);
}

}  // namespace
}  // namespace coppice::comm
