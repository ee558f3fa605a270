// Keys from files: who may call what, and what a file may have.
#include "coordinator/http/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace coppice::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kUser[] = "user-key-0123456789";
constexpr char kAdmin[] = "admin-key-0123456789";

class ApiKeysTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  ApiKeys Load(const std::string& users, const std::string& admins) {
    absl::StatusOr<ApiKeys> keys = ApiKeys::Load(users.empty() ? "" : Write("users", users),
                                                 admins.empty() ? "" : Write("admins", admins));
    EXPECT_TRUE(keys.ok()) << keys.status();
    return *std::move(keys);
  }
  std::string LoadError(const std::string& users) {
    return std::string(ApiKeys::Load(Write("users", users), "").status().message());
  }
  // "" or the code of the refusal.
  std::string Check(const ApiKeys& keys, const std::string& header, Access access,
                    bool from_this_host = true) {
    HttpRequest request;
    request.authorization = header;
    request.from_this_host = from_this_host;
    const std::optional<ApiError> error = keys.Check(request, access, &caller_);
    return error ? error->code : "";
  }
  test::TempDir folder_;
  std::string caller_;
};

TEST_F(ApiKeysTest, WithoutFilesUsersAreFreeAndThisHostIsTheAdmin) {
  const ApiKeys keys = Load("", "");
  EXPECT_EQ(Check(keys, "", Access::kUser, false), "");
  EXPECT_EQ(Check(keys, "", Access::kAdmin, true), "");
  EXPECT_EQ(Check(keys, "", Access::kAdmin, false), "admin_only");
}

TEST_F(ApiKeysTest, AWebPageOnThisHostIsNoAdminWithoutAKey) {
  HttpRequest request;
  request.from_this_host = true;
  request.has_origin = true;
  EXPECT_EQ(Load("", "").Check(request, Access::kAdmin, &caller_)->code, "admin_only");
  EXPECT_FALSE(Load("", "").Check(request, Access::kUser, &caller_));
  request.authorization = std::string("Bearer ") + kAdmin;
  EXPECT_FALSE(Load("", kAdmin).Check(request, Access::kAdmin, &caller_));
}

TEST_F(ApiKeysTest, UsersNeedAKeyAndAdminsAreUsers) {
  const ApiKeys keys = Load(std::string("# users\n\n") + kUser + " alice\n", std::string(kAdmin));
  EXPECT_EQ(Check(keys, "", Access::kOpen), "");
  EXPECT_EQ(Check(keys, "", Access::kUser), "missing_api_key");
  EXPECT_EQ(Check(keys, std::string("Basic ") + kUser, Access::kUser), "missing_api_key");
  EXPECT_EQ(Check(keys, std::string("Bearer ") + kUser, Access::kUser), "");
  EXPECT_EQ(caller_, "alice");
  EXPECT_EQ(Check(keys, std::string("bearer  ") + kUser, Access::kUser), "");
  EXPECT_EQ(Check(keys, std::string("Bearer ") + kAdmin, Access::kUser), "");
  EXPECT_EQ(caller_, "admin-line-1");
  EXPECT_EQ(Check(keys, std::string("Bearer ") + kUser, Access::kAdmin), "admin_only");
  EXPECT_EQ(Check(keys, "", Access::kAdmin), "missing_api_key");
  EXPECT_EQ(Check(keys, std::string("Bearer ") + kAdmin, Access::kAdmin, false), "");
}

TEST_F(ApiKeysTest, AKeyMustMatchWhole) {
  const ApiKeys keys = Load(kUser, "");
  const std::string good = std::string("Bearer ") + kUser;
  for (const std::string& wrong :
       {good + "x", good.substr(0, good.size() - 1), std::string("Bearer "), good + " " + kUser}) {
    EXPECT_EQ(Check(keys, wrong, Access::kUser), "invalid_api_key") << wrong;
  }
}

TEST_F(ApiKeysTest, AKeyInBothFilesIsAnAdmins) {
  const ApiKeys keys = Load(std::string(kAdmin) + " low", std::string(kAdmin) + " high");
  EXPECT_EQ(Check(keys, std::string("Bearer ") + kAdmin, Access::kAdmin), "");
  EXPECT_EQ(caller_, "high");
}

TEST_F(ApiKeysTest, AKeyMayHaveAWeight) {
  const ApiKeys keys = Load(
      "key-of-alice-0001 alice weight=2.5\nkey-of-alice-0002 alice\nkey-of-bob-000003 bob\n"
      "key-of-nobody-004 weight=4\n",
      "");
  EXPECT_EQ(Check(keys, "Bearer key-of-alice-0002", Access::kUser), "");
  EXPECT_EQ(caller_, "alice");
  EXPECT_EQ(keys.WeightOf("alice"), 2.5);
  EXPECT_EQ(keys.WeightOf("bob"), 1);
  EXPECT_EQ(keys.WeightOf("user-line-4"), 4);
  EXPECT_EQ(keys.WeightOf("unknown"), 1);
  for (const char* weight : {"0", "-1", "nan", "101", "x", ""}) {
    EXPECT_THAT(LoadError(absl::StrCat(kUser, " alice weight=", weight)),
                HasSubstr("users:1: weight is a number from 0.01 to 100"))
        << weight;
  }
  EXPECT_THAT(LoadError(absl::StrCat(kUser, " weight=1 alice")),
              HasSubstr("users:1: a line is KEY"));
}

TEST_F(ApiKeysTest, BadFilesAreNamedWithLineAndWithoutTheKey) {
  EXPECT_THAT(LoadError("# none\n"), HasSubstr("users: it has no key"));
  EXPECT_THAT(LoadError("\nsecret-key\n"), HasSubstr("users:2: a key has at least 16"));
  EXPECT_THAT(LoadError("\nsecret-key\n"), Not(HasSubstr("secret-key")));
  EXPECT_THAT(LoadError("secret-key-0123456789 a b\n"), HasSubstr("users:1: a line is KEY"));
  EXPECT_THAT(LoadError("secret-key-0123456789 a\"b\n"), HasSubstr("users:1: a name is"));
  EXPECT_THAT(LoadError("secret-key-\xff-0123456789\n"), HasSubstr("printable"));
  EXPECT_THAT(std::string(ApiKeys::Load("/none", "").status().message()),
              HasSubstr("/none: cannot be opened: No such file"));
}

}  // namespace
}  // namespace coppice::coordinator
