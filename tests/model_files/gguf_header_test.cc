// Broken headers: each is refused in one line that names the file, the item and what was expected.
#include "model_files/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/testing/gguf_builder.h"

namespace coppice::model_files {
namespace {

using test::GgufBuilder;
using test::GgufNumber;
using test::GgufText;
using testing::ElementsAre;

GgufBuilder Small() {
  GgufBuilder file;
  file.Text("a.text", "words").U32("a.number", 7).Texts("a.list", {"x", "", "yz"});
  file.F32Tensor("one", {2, 3}, {1, 2, 3, 4, 5, 6});
  file.Tensor("two", {2, 32}, /*type=*/8, std::string(68, 'q'));
  return file;
}

std::string Refusal(const std::string& bytes) {
  const absl::Status status = ParseGgufHeader("F", bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(GgufHeader, HasKeysAndTensors) {
  for (const uint32_t version : {2, 3}) {
    const std::string bytes = Small().Bytes(version);
    const auto header = ParseGgufHeader("F", bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    ASSERT_EQ(header->metadata.size(), 3u);
    const GgufValue& list = header->metadata.at("a.list");
    EXPECT_TRUE(list.is_list);
    EXPECT_EQ(list.kind, GgufKind::kText);
    EXPECT_EQ(list.count, 3u);
    EXPECT_EQ(list.bytes.size(), 3u * 8 + 3);
    ASSERT_EQ(header->tensors.size(), 2u);
    const GgufTensor& two = header->tensors[1];
    EXPECT_EQ(two.name, "two");
    EXPECT_STREQ(two.type->name, "Q8_0");
    EXPECT_THAT(two.shape, ElementsAre(2, 32));
    EXPECT_EQ(two.end - two.begin, 68u);
    EXPECT_EQ(bytes.substr(two.begin, 68), std::string(68, 'q'));
  }
}

TEST(GgufHeader, DataIsAligned) {
  GgufBuilder file = Small();
  file.U32("general.alignment", 4096);
  const std::string bytes = file.Bytes(3, 4096);
  const auto header = ParseGgufHeader("F", bytes);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors[0].begin % 4096, 0u);
  EXPECT_EQ(header->tensors[1].begin - header->tensors[0].begin, 4096u);
}

// Wherever a file ends, it is refused: in its header, and in the data of its tensors.
TEST(GgufHeader, EveryShorterFileIsRefused) {
  const std::string bytes = Small().Bytes();
  const auto header = ParseGgufHeader("F", bytes);
  ASSERT_TRUE(header.ok());
  for (size_t size = 0; size < header->tensors[1].end; ++size) {
    const std::string refusal = Refusal(bytes.substr(0, size));
    EXPECT_THAT(refusal, testing::StartsWith("F: ")) << size;
    EXPECT_THAT(refusal, testing::EndsWith("truncated")) << size;
  }
}

std::string Header(uint64_t tensors, uint64_t keys) {
  return absl::StrCat("GGUF", GgufNumber(3, 4), GgufNumber(tensors, 8), GgufNumber(keys, 8));
}

std::string TensorInfo(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                       uint64_t offset) {
  std::string bytes = GgufText(name) + GgufNumber(sizes.size(), 4);
  for (const uint64_t size : sizes) bytes += GgufNumber(size, 8);
  return bytes + GgufNumber(type, 4) + GgufNumber(offset, 8);
}

TEST(GgufHeader, RefusesWhatIsNoGguf) {
  EXPECT_EQ(Refusal("PK\x03\x04 and so on, a zip archive"),
            "F: begins with 'PK\\x03\\x04', expected a GGUF file");
  EXPECT_EQ(Refusal(Small().Bytes(1)), "F: GGUF version 1, expected 2 or 3");
  EXPECT_EQ(Refusal(Small().Bytes(uint32_t{3} << 24)),
            "F: big-endian, expected a little-endian GGUF file");
  EXPECT_EQ(Refusal(Header(uint64_t{1} << 40, 0)),
            "F: the header: 1099511627776 tensors, expected at most 65536");
  EXPECT_EQ(Refusal(Header(0, 70000)), "F: the header: 70000 keys, expected at most 65536");
}

TEST(GgufHeader, RefusesBrokenKeys) {
  const auto key = [](const std::string& value) {
    return Refusal(Header(0, 1) + GgufText("k") + value + std::string(64, '\0'));
  };
  EXPECT_EQ(key(GgufNumber(13, 4)), "F: key k: type 13, expected a type of metadata, 0 to 12");
  EXPECT_EQ(key(GgufNumber(9, 4) + GgufNumber(9, 4) + GgufNumber(1, 8)),
            "F: key k: a list of type 9, expected a type of metadata, 0 to 12, but not a list");
  EXPECT_EQ(key(GgufNumber(9, 4) + GgufNumber(4, 4) + GgufNumber(uint64_t{1} << 62, 8)),
            "F: key k: 4611686018427387904 items do not fit into the 64 bytes that the file still "
            "has: it is truncated");
  EXPECT_EQ(key(GgufNumber(8, 4) + GgufNumber(UINT64_MAX, 8)),
            "F: the file ends at byte 109, inside of key k: it is truncated");
  EXPECT_EQ(Refusal(Header(0, 2) + GgufText("k") + GgufNumber(7, 4) + "\x01" + GgufText("k") +
                    GgufNumber(7, 4) + "\x01"),
            "F: key k: appears twice");
  EXPECT_EQ(Refusal(Header(0, 1) + GgufText("")),
            "F: the name of key 0: 0 bytes, expected 1 to "
            "65535");
  GgufBuilder file = Small();
  EXPECT_EQ(Refusal(file.U32("general.alignment", 48).Bytes()),
            "F: key general.alignment: expected a power of two up to 1048576, as a 32-bit number");
}

TEST(GgufHeader, RefusesBrokenTensors) {
  const std::string data(256, '\0');
  const auto tensor = [&](const std::string& info) { return Refusal(Header(1, 0) + info + data); };
  EXPECT_EQ(tensor(TensorInfo("t", {}, 0, 0)), "F: tensor t: 0 dimensions, expected 1 to 4");
  EXPECT_EQ(tensor(TensorInfo("t", {1, 1, 1, 1, 1}, 0, 0)),
            "F: tensor t: 5 dimensions, expected 1 to 4");
  EXPECT_EQ(tensor(TensorInfo("t", {4, 0}, 0, 0)),
            "F: tensor t: shape [0, 4], expected sizes of at least 1 whose product fits");
  EXPECT_EQ(tensor(TensorInfo("t", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)),
            "F: tensor t: shape [1099511627776, 1099511627776], expected sizes of at least 1 whose "
            "product fits");
  EXPECT_EQ(tensor(TensorInfo("t", {40}, 8, 0)),
            "F: tensor t: rows of 40 values, expected a multiple of 32, the block of Q8_0");
  EXPECT_EQ(tensor(TensorInfo("t", {4}, 5, 0)),
            "F: tensor t: type 5, expected a number of a tensor type");
  EXPECT_EQ(tensor(TensorInfo("t", {4}, 0, 8)),
            "F: tensor t: offset 8, expected a multiple of 32, the alignment");
  EXPECT_EQ(tensor(TensorInfo("t", {4}, 0, UINT64_MAX - 31)),
            "F: tensor t: 16 bytes at offset 18446744073709551584 of the data, but the file has "
            "313 bytes: it is truncated");
  EXPECT_EQ(
      Refusal(Header(2, 0) + TensorInfo("t", {16}, 0, 0) + TensorInfo("u", {1}, 0, 32) + data),
      "F: tensor u: overlaps t");
  EXPECT_EQ(Refusal(Header(2, 0) + TensorInfo("t", {1}, 0, 0) + TensorInfo("t", {1}, 0, 32) + data),
            "F: tensor t: appears twice");
  EXPECT_EQ(Refusal(Header(1, 0) + TensorInfo("a\nb", {3}, 5, 0) + data),
            "F: tensor a\\nb: type 5, expected a number of a tensor type");
}

}  // namespace
}  // namespace coppice::model_files
