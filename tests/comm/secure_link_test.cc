#include "comm/secure_link.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/comm/channel_ends.h"
#include "tests/comm/link_ends.h"

namespace coppice::comm {
namespace {

TEST(SecureLinkTest, CarriesContentOfAnySizeBothWays) {
  LinkPair pair;
  EXPECT_FALSE(pair.client.link.ready());
  EXPECT_FALSE(pair.server.link.ready());
  pair.Greet();
  EXPECT_TRUE(pair.client.link.ready());
  EXPECT_TRUE(pair.server.link.ready());
  std::string to_server, to_client;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16}, SecureLink::kMostPlain - 1,
                            SecureLink::kMostPlain, SecureLink::kMostPlain + 1, size_t{1} << 20}) {
    const std::string content(size, static_cast<char>('a' + size % 20));
    const std::string sealed = pair.client.Seal(content);
    const size_t records =
        std::max<size_t>(1, (size + SecureLink::kMostPlain - 1) / SecureLink::kMostPlain);
    EXPECT_EQ(sealed.size(), size + records * (2 + kTagBytes));
    to_server += content;
    ASSERT_TRUE(pair.server.Take(sealed));
    to_client += "<" + content + ">";
    ASSERT_TRUE(pair.client.Take(pair.server.Seal("<" + content + ">")));
  }
  EXPECT_TRUE(pair.server.told == to_server);
  EXPECT_TRUE(pair.client.told == to_client);
}

TEST(SecureLinkTest, TheContentCannotBeSeenAndEqualContentLooksDifferent) {
  LinkPair pair;
  pair.Greet();
  const std::string content = "the same words every time";
  const std::string first = pair.client.Seal(content), second = pair.client.Seal(content);
  EXPECT_NE(first, second);
  EXPECT_EQ((first + second).find("words"), std::string::npos);
}

TEST(SecureLinkTest, BytesMayArriveOneByOne) {
  LinkPair pair;
  const auto one_by_one = [](LinkEnd* end, const std::string& bytes) {
    for (const char byte : bytes) ASSERT_TRUE(end->Take(std::string(1, byte)));
  };
  one_by_one(&pair.server, pair.client.link.TakeOutgoing());
  one_by_one(&pair.client, pair.server.link.TakeOutgoing());
  EXPECT_FALSE(pair.server.link.ready());  // the client could be a recording
  one_by_one(&pair.server, pair.client.link.TakeOutgoing() + pair.client.Seal("content"));
  EXPECT_EQ(pair.server.told, "content");
}

TEST(SecureLinkTest, AnotherKeyIsAFaultOfTheServerAtOnceAndOfTheClientIfTheServerAnswers) {
  LinkPair pair(/*client_key=*/1, /*server_key=*/2);
  EXPECT_FALSE(pair.server.Take(pair.client.link.TakeOutgoing()));
  EXPECT_STREQ(pair.server.link.fault(), "it has another cluster key");
  EXPECT_EQ(pair.server.link.TakeOutgoing(), "");
  LinkPair other(2, 2);
  ASSERT_TRUE(other.server.Take(other.client.link.TakeOutgoing()));
  LinkPair client(1, 1);
  EXPECT_FALSE(client.client.Take(other.server.link.TakeOutgoing()));
  EXPECT_STREQ(client.client.link.fault(), "it has another cluster key");
  EXPECT_FALSE(client.client.link.ready());
}

TEST(SecureLinkTest, GoodFramesWithoutTheHandshakeAreAFaultAndNotContent) {
  LinkPair pair;
  EXPECT_FALSE(pair.server.Take(GoodFrame(Beat(1))));
  EXPECT_STREQ(pair.server.link.fault(), "it has no cluster key");
  EXPECT_EQ(pair.server.told, "");
  LinkPair other;
  EXPECT_FALSE(other.client.Take(GoodFrame(Beat(1))));
  EXPECT_STREQ(other.client.link.fault(), "it has no cluster key");
}

TEST(SecureLinkTest, AnotherLengthThanTheHandshakesIsAFaultAfterTwoBytes) {
  for (const char* bytes : {"GE", "\xff\xff", "\x00\x2f", "\x16\x03"}) {
    LinkPair pair;
    EXPECT_FALSE(pair.server.Take(absl::string_view(bytes, 2)));
    EXPECT_STREQ(pair.server.link.fault(), "it speaks another protocol");
  }
}

TEST(SecureLinkTest, BeforeTheProofOnlyTheHandshakeIsTakenFromTheSocket) {
  LinkPair pair;
  EXPECT_EQ(pair.server.link.Room().size(), SecureLink::kHelloBytes);
  const std::string hello = pair.client.link.TakeOutgoing();
  ASSERT_TRUE(pair.server.Take(hello.substr(0, 20)));
  EXPECT_EQ(pair.server.link.Room().size(), SecureLink::kHelloBytes - 20);
  ASSERT_TRUE(pair.server.Take(hello.substr(20)));
  EXPECT_EQ(pair.server.link.Room().size(), SecureLink::kProofBytes);
}

// Everything that a client has sent, sent again to a server: its first message is right, but the
// server's part of the keys is new.
TEST(SecureLinkTest, ARecordedConnectionIsNoProof) {
  LinkPair recorded;
  std::string bytes = recorded.Greet();
  bytes += recorded.client.Seal("give me everything");
  LinkPair again(1, 1, 11, /*server_ephemeral=*/13);
  EXPECT_FALSE(again.server.Take(bytes));
  EXPECT_STREQ(again.server.link.fault(), "it has another cluster key");
  EXPECT_FALSE(again.server.link.ready());
  EXPECT_EQ(again.server.told, "");
}

TEST(SecureLinkTest, AServersAnswerOfAnotherConnectionIsNoProof) {
  LinkPair recorded;
  ASSERT_TRUE(recorded.server.Take(recorded.client.link.TakeOutgoing()));
  const std::string answer = recorded.server.link.TakeOutgoing();
  LinkPair again(1, 1, /*client_ephemeral=*/14, 12);
  EXPECT_FALSE(again.client.Take(answer));
  EXPECT_FALSE(again.client.link.ready());
}

TEST(SecureLinkTest, OwnBytesSentBackAreAFault) {
  LinkPair pair;
  EXPECT_FALSE(pair.client.Take(pair.client.link.TakeOutgoing()));
  LinkPair greeted;
  greeted.Greet();
  EXPECT_FALSE(greeted.client.Take(greeted.client.Seal("content")));
  EXPECT_EQ(greeted.client.told, "");
}

TEST(SecureLinkTest, RepeatedMovedOrMissingRecordsAreAFault) {
  for (const std::vector<int>& order :
       std::vector<std::vector<int>>{{0, 0, 1}, {1, 0, 2}, {0, 2}, {2}, {0, 1, 1}}) {
    LinkPair pair;
    pair.Greet();
    std::vector<std::string> records;
    for (const char* content : {"a", "b", "c"}) records.push_back(pair.client.Seal(content));
    bool right = true;
    for (const int record : order) right = right && pair.server.Take(records[record]);
    EXPECT_FALSE(right);
    EXPECT_EQ(pair.server.told, std::string("abc").substr(0, pair.server.records));
    EXPECT_EQ(pair.server.link.NextRecord(), std::nullopt);
  }
}

TEST(SecureLinkTest, AChangedBitAnywhereInARecordIsAFaultOrLeavesItIncomplete) {
  LinkPair whole;
  whole.Greet();
  const size_t bits = 8 * whole.client.Seal("content").size();
  for (size_t bit = 0; bit < bits; ++bit) {
    LinkPair pair;
    pair.Greet();
    std::string sealed = pair.client.Seal("content");
    sealed[bit / 8] = static_cast<char>(sealed[bit / 8] ^ (1 << bit % 8));
    pair.server.Take(sealed + pair.client.Seal(std::string(1 << 17, 'x')));
    EXPECT_EQ(pair.server.told, "") << bit;
    EXPECT_NE(pair.server.link.fault(), nullptr) << bit;
  }
}

TEST(SecureLinkTest, ACutRecordIsNoContent) {
  LinkPair pair;
  pair.Greet();
  const std::string sealed = pair.client.Seal("content");
  for (size_t size = 0; size + 1 < sealed.size(); ++size) {
    ASSERT_TRUE(pair.server.Take(sealed.substr(size, 1)));
    EXPECT_EQ(pair.server.link.NextRecord(), std::nullopt);
  }
  ASSERT_TRUE(pair.server.Take(sealed.substr(sealed.size() - 1)));
  EXPECT_EQ(pair.server.told, "content");
}

TEST(SecureLinkTest, ARecordTooShortForATagIsAFault) {
  for (const int length : {0, 1, 15}) {
    LinkPair pair;
    pair.Greet();
    EXPECT_FALSE(pair.server.Take(std::string(1, '\0') + static_cast<char>(length)));
    EXPECT_NE(pair.server.link.fault(), nullptr);
  }
}

TEST(SecureLinkTest, EveryConnectionHasKeysOfItsOwn) {
  SecureLink one(SecureLink::End::kConnects, KeyOf(1)), two(SecureLink::End::kConnects, KeyOf(1));
  EXPECT_NE(one.TakeOutgoing(), two.TakeOutgoing());
}

}  // namespace
}  // namespace coppice::comm
