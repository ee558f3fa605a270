#include "comm/noise_handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"

namespace coppice::comm {
namespace {

using End = NoiseHandshake::End;

KeyBytes Key(const std::string& hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  KeyBytes key = {};
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}
KeyBytes Filled(uint8_t value) {
  KeyBytes key;
  key.fill(value);
  return key;
}

std::string Seal(MessageCipher* cipher, const std::string& plain) {
  std::string sealed(plain.size() + kTagBytes, '\0');
  cipher->Seal(plain, "", reinterpret_cast<uint8_t*>(sealed.data()));
  return sealed;
}
std::string Open(MessageCipher* cipher, const std::string& sealed) {
  std::string plain(sealed.size() - kTagBytes, '\0');
  const bool right = cipher->Open(sealed, "", reinterpret_cast<uint8_t*>(plain.data()));
  return right ? plain : "not the next message";
}

// The vector of the project cacophony for this protocol (as the project snow has it in
// tests/vectors/cacophony.txt).
TEST(NoiseHandshakeTest, AgreesWithThePublishedVector) {
  const KeyBytes psk = Key("54686973206973206d7920417573747269616e20706572737065637469766521");
  const std::string prologue = absl::HexStringToBytes("4a6f686e2047616c74");
  NoiseHandshake connects(End::kConnects, psk, prologue,
                          Key("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"));
  NoiseHandshake listens(End::kListens, psk, prologue,
                         Key("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"));
  const auto first = connects.Write("Ludwig von Mises");
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(
      absl::BytesToHexString(*first),
      "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944d6950b5145b4067a58a0692d"
      "c0f114b368c3769275d30efc88c48aeaa82a91b2");
  EXPECT_EQ(listens.Read(*first), "Ludwig von Mises");
  const auto second = listens.Write("Murray Rothbard");
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(
      absl::BytesToHexString(*second),
      "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843270979b50a80b94def87f09f"
      "53e0407dcfdbcf99daa2ff53ae7cf8b356ec1e");
  EXPECT_EQ(connects.Read(*second), "Murray Rothbard");
  const std::string hash(connects.hash().begin(), connects.hash().end());
  EXPECT_EQ(
      absl::BytesToHexString(hash),
      "20747c2d6e39075ff1d468a0cc43a29f59217d41032e093341739713acf575f27fa3d47c4960cae660f07de8"
      "4ac450429d9db318cd49fb2fe1625933f298828c");
  EXPECT_EQ(connects.hash(), listens.hash());
  auto a = connects.Split(), b = listens.Split();
  EXPECT_EQ(absl::BytesToHexString(Seal(&a.sends, "F. A. Hayek")),
            "ee068282e99e581b2cc395353e40df23a62b4d3f171e51be36f9be");
  EXPECT_EQ(absl::BytesToHexString(Seal(&b.sends, "Carl Menger")),
            "9de46567c24635ad9a0c74742340b850e4f347ee5784c79115e36f");
  EXPECT_EQ(absl::BytesToHexString(Seal(&a.sends, "Jean-Baptiste Say")),
            "7ac5e36fb474838f58adb69bc00b1c5297033f429d819636fcbbd66a9c2cfdef29");
  EXPECT_EQ(absl::BytesToHexString(Seal(&b.sends, "Eugen B\xf6hm von Bawerk")),
            "760415b528bc3ae7638ae2e999b30db6bb200dd4b437a53b44bbe64994d27b54731066bfa4");
}

TEST(NoiseHandshakeTest, AnotherKeyOrPrologueIsRefusedAtTheFirstMessage) {
  for (const bool same_key : {false, true}) {
    NoiseHandshake connects(End::kConnects, Filled(1), "one", Filled(3));
    NoiseHandshake listens(End::kListens, Filled(same_key ? 1 : 2), same_key ? "two" : "one",
                           Filled(4));
    EXPECT_FALSE(listens.Read(*connects.Write("")).has_value());
  }
}

TEST(NoiseHandshakeTest, AChangedBitAnywhereIsRefused) {
  for (size_t bit = 0; bit < 8 * kHandshakeBytes; ++bit) {
    for (const bool answer : {false, true}) {
      NoiseHandshake connects(End::kConnects, Filled(1), "", Filled(3));
      NoiseHandshake listens(End::kListens, Filled(1), "", Filled(4));
      std::string message = *connects.Write("");
      if (answer) {
        ASSERT_TRUE(listens.Read(message).has_value());
        message = *listens.Write("");
      }
      message[bit / 8] = static_cast<char>(message[bit / 8] ^ (1 << bit % 8));
      EXPECT_FALSE((answer ? connects : listens).Read(message).has_value()) << bit;
    }
  }
}

TEST(NoiseHandshakeTest, AShortMessageIsRefused) {
  for (size_t size = 0; size < kHandshakeBytes; ++size) {
    NoiseHandshake connects(End::kConnects, Filled(1), "", Filled(3));
    NoiseHandshake listens(End::kListens, Filled(1), "", Filled(4));
    EXPECT_FALSE(listens.Read(connects.Write("")->substr(0, size)).has_value());
  }
}

TEST(MessageCipherTest, OnlyTheNextMessageOpens) {
  MessageCipher sends(Filled(7)), receives(Filled(7));
  const std::string first = Seal(&sends, "first"), second = Seal(&sends, "second");
  EXPECT_EQ(Open(&receives, second), "not the next message");  // one is missing
  EXPECT_EQ(Open(&receives, first), "first");
  EXPECT_EQ(Open(&receives, first), "not the next message");  // repeated
  EXPECT_EQ(Open(&receives, second), "second");
}

}  // namespace
}  // namespace coppice::comm
