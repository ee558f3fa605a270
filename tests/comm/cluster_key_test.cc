#include "comm/cluster_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "tests/testing/temp_dir.h"

namespace coppice::comm {
namespace {

using ::testing::HasSubstr;

const char kGood[] =
    "coppice-cluster-key-1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

std::string Hex(const KeyBytes& bytes) {
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

class ClusterKeyTest : public ::testing::Test {
 protected:
  std::string WriteKey(const std::string& text, mode_t mode = 0600) {
    folder_.Write("key", text);
    EXPECT_EQ(chmod(folder_.File("key").c_str(), mode), 0);
    return folder_.File("key");
  }
  test::TempDir folder_;
};

// The expected values were computed with BLAKE2b of Python's hashlib and X25519 of its
// cryptography package. Programs of different versions must derive the same keys.
TEST_F(ClusterKeyTest, DerivesTheSameKeysForGood) {
  const auto key = ClusterKey::Load(WriteKey(kGood));
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(Hex((*key)->link()),
            "982cb43842365ff7786ad089a8f1b8af766ce8898888d67083a1c1da4286802e");
  EXPECT_EQ(Hex((*key)->listener().public_key),
            "121288bdc30b258479707f796b3b9d08abec93aa5ef576fa9a5894d80a950850");
  EXPECT_EQ(Hex((*key)->connector().public_key),
            "8a7f6dc61d3bb6b1a0820a5271b1f2c7eb4e04789d69cb5ea31e9b71e9b8e309");
}

TEST_F(ClusterKeyTest, NoFileIsNoKey) {
  const auto key = ClusterKey::Load("");
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(*key, nullptr);
}

TEST_F(ClusterKeyTest, UpperCaseAndNoNewlineAreTheSameKey) {
  std::string text = kGood;
  const std::string upper =
      text.substr(0, 22) + absl::AsciiStrToUpper(text.substr(22, 2 * kKeyBytes));
  const auto key = ClusterKey::Load(WriteKey(upper, 0400));
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ((*key)->link(), (*ClusterKey::Load(WriteKey(kGood)))->link());
}

TEST_F(ClusterKeyTest, AMissingFileIsNamed) {
  const auto key = ClusterKey::Load(folder_.File("none"));
  EXPECT_EQ(key.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(key.status().message()), HasSubstr(folder_.File("none")));
}

TEST_F(ClusterKeyTest, AFileThatOthersCanUseIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0601, 0644, 0666, 0777}) {
    const auto key = ClusterKey::Load(WriteKey(kGood, mode));
    ASSERT_EQ(key.status().code(), absl::StatusCode::kFailedPrecondition) << std::oct << mode;
    EXPECT_THAT(std::string(key.status().message()), HasSubstr(folder_.File("key")));
    EXPECT_THAT(std::string(key.status().message()), HasSubstr("chmod 600"));
  }
}

TEST_F(ClusterKeyTest, AFileOfAnotherUserIsRefused) {
  const std::string path = WriteKey(kGood);
  if (geteuid() != 0) {  // only root can give a file away, and only root can take another identity
    EXPECT_NE(chown(path.c_str(), 12345, -1), 0);
    return;
  }
  ASSERT_EQ(chown(path.c_str(), 12345, -1), 0);
  const auto key = ClusterKey::Load(path);
  EXPECT_EQ(key.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(key.status().message()), HasSubstr("user 12345"));
}

TEST_F(ClusterKeyTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  EXPECT_EQ(ClusterKey::Load(folder_.path()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // nobody writes to it
  EXPECT_EQ(ClusterKey::Load(pipe).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClusterKeyTest, AnotherFormIsNamedAndTheContentIsNotRepeated) {
  const std::string good = kGood;
  const std::string body = good.substr(0, good.size() - 1);
  for (const std::string& bad :
       {std::string(), std::string("\n"), body.substr(0, body.size() - 1), body + "0",
        body.substr(22), "coppice-cluster-key-2 " + body.substr(22),
        body.substr(0, 40) + "g" + body.substr(41), " " + body, body + "\n" + body, body + " 00",
        body.substr(0, 30) + ":" + body.substr(31), body + std::string(1, '\0') + "x",
        std::string(5000, 'a')}) {
    const auto key = ClusterKey::Load(WriteKey(bad));
    ASSERT_EQ(key.status().code(), absl::StatusCode::kInvalidArgument) << "'" << bad << "'";
    EXPECT_THAT(std::string(key.status().message()), HasSubstr(folder_.File("key")));
    EXPECT_THAT(std::string(key.status().message()), ::testing::Not(HasSubstr("0c0d0e0f")));
  }
}

TEST_F(ClusterKeyTest, ZerosAreNoKey) {
  const auto key =
      ClusterKey::Load(WriteKey("coppice-cluster-key-1 " + std::string(2 * kKeyBytes, '0') + "\n"));
  EXPECT_EQ(key.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace coppice::comm
