#include "coordinator/http/gzip.h"

#include <gtest/gtest.h>

#include <random>

namespace coppice::coordinator {
namespace {

// RFC 9110 12.5.3, 12.4.2.
TEST(GzipTest, TheClientChoosesTheCoding) {
  for (const char* yes : {"gzip", "GZIP", "x-gzip", "gzip, deflate, br",
                          "br;q=1.0, gzip;q=0.8, *;q=0.1", "*", "gzip;q=0.001", "gzip ; Q=1",
                          "identity;q=0.5, gzip", "gzip;q=0.5, identity;q=0.5", "deflate,,gzip"}) {
    EXPECT_TRUE(PrefersGzip(yes)) << yes;
  }
  for (const char* no :
       {"", "identity", "br", "gzip;q=0", "gzip;q=0.000", "*;q=0", "*, gzip;q=0", "gzip;q=2",
        "gzip;q=x", "gzip;q=-1", "gzip;q=nan", "gzip;q=0.5, identity", "gzippy", "gzip gzip"}) {
    EXPECT_FALSE(PrefersGzip(no)) << no;
  }
}

TEST(GzipTest, CodingsOfBodies) {
  for (const char* none : {"", "identity", "Identity , identity"})
    EXPECT_EQ(IsGzipCoding(none), false) << none;
  for (const char* gzip : {"gzip", "X-Gzip", " gzip ", "identity, gzip"})
    EXPECT_EQ(IsGzipCoding(gzip), true) << gzip;
  for (const char* other : {"br", "deflate", "gzip, br", "gzip, gzip", "gzip;q=1"})
    EXPECT_EQ(IsGzipCoding(other), std::nullopt) << other;
}

std::string Noise(size_t size) {
  std::mt19937 engine(7);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(engine());
  return text;
}

TEST(GzipTest, TextsComeBack) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(200000, 'a'), Noise(65536), Noise(200001)}) {
    const std::optional<std::string> file = Gzip(text);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(file->substr(0, 2), "\x1f\x8b");
    EXPECT_EQ(GunzippedSize(*file), text.size());
    const absl::StatusOr<std::string> back = Gunzip(*file, text.size());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, text);
  }
  EXPECT_LT(Gzip(std::string(200000, 'a'))->size(), 2000u);
}

TEST(GzipTest, MoreThanAllowedIsRefused) {
  const std::string file = *Gzip(std::string(1001, 'a'));
  EXPECT_TRUE(absl::IsResourceExhausted(Gunzip(file, 1000).status()));
  EXPECT_TRUE(Gunzip(file, 1001).ok());
}

// A file that says that it is small, and is not.
TEST(GzipTest, ABombIsRefused) {
  for (const int less : {1, 1000, 1 << 20}) {
    std::string file = *Gzip(std::string((1 << 20) + 1, 'a'));
    const uint32_t said = (1 << 20) + 1 - less;
    for (int i = 0; i < 4; ++i) file[file.size() - 4 + i] = static_cast<char>(said >> (8 * i));
    EXPECT_TRUE(absl::IsInvalidArgument(Gunzip(file, 2 << 20).status())) << less;
  }
}

TEST(GzipTest, OtherBytesAreRefused) {
  const std::string file = *Gzip("hello, hello, hello");
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(Gunzip(file.substr(0, size), 1000).ok()) << size;
  EXPECT_FALSE(Gunzip(file + "x", 1000).ok());
  EXPECT_FALSE(Gunzip(file + file, 1000).ok());  // two members
  EXPECT_FALSE(Gunzip("{\"prompt\": \"not a gzip file at all\"}", size_t{1} << 40).ok());
  for (size_t at = 10; at < file.size(); ++at) {
    std::string changed = file;
    changed[at] ^= 1;
    EXPECT_FALSE(Gunzip(changed, 1000).ok()) << at;
  }
}

}  // namespace
}  // namespace coppice::coordinator
