// The fuzzer of catalogues over small ones and files of items, and random changes of them.
// COPPICE_WRITE_SEEDS=FOLDER also writes them there, for fuzz.sh.
#include <cstdlib>
#include <fstream>

#include "tests/catalogue/sample_catalogue.h"
#include "tests/testing/fuzz_seeds.h"

namespace coppice::catalogue {
namespace {

std::vector<std::string> Samples() {
  std::mt19937 random(6);
  const test::TempDir dir;
  std::vector<std::string> samples;
  for (const ItemEnd end : {ItemEnd::kNone, ItemEnd::kStop}) {
    for (const int most : {1, 7, 40}) {
      const auto items = RandomItems(&random, 30, most, 4, end);
      EXPECT_TRUE(Compile(items, end, 40, dir.File("c")).ok());
      for (const char choice : {'\0', '\1'}) samples.push_back(choice + FileBytes(dir.File("c")));
      std::string lines(1, end == ItemEnd::kNone ? '\2' : '\3'), objects = lines;
      for (const SampleItem& item : items) {
        for (const TokenId token : item.tokens) absl::StrAppend(&lines, token, " ");
        lines += "\n";
        absl::StrAppend(&objects, R"({"id": ")", item.id, R"(", "name": ")", item.name,
                        R"(", "text": "<)", item.tokens[0], R"(>"})", "\n");
      }
      samples.push_back(lines);
      samples.push_back(objects);
    }
  }
  return samples;
}

TEST(CatalogueSeeds, EveryChangeIsRefusedOrUsed) {
  const std::vector<std::string> samples = Samples();
  if (const char* folder = std::getenv("COPPICE_WRITE_SEEDS")) {
    for (size_t i = 0; i < samples.size(); ++i)
      std::ofstream(absl::StrCat(folder, "/", i), std::ios::binary) << samples[i];
  }
  test::RunSeedsAndChanges(samples, 2500);
}

}  // namespace
}  // namespace coppice::catalogue
