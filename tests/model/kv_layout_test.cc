// How the layers of known models are divided into groups.
#include "model/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace coppice::model {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

// Every `period`-th layer sees everything; 0: none.
ModelConfig Config(int layers, int window, int period, int max_positions = 131072) {
  ModelConfig config;
  config.num_layers = layers;
  config.max_positions = max_positions;
  config.layers.resize(layers);
  for (int layer = 0; layer < layers; ++layer) {
    const bool whole = period > 0 && (layer + 1) % period == 0;
    config.layers[layer].window = whole ? 0 : window;
  }
  return config;
}

// Each layer has a place of its own, in a group of its window.
void CheckPlaces(const ModelConfig& config, const KvLayout& layout) {
  ASSERT_EQ(layout.places.size(), config.layers.size());
  std::set<std::pair<int, int>> places;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const kernels::KvPlace place = layout.places[layer];
    ASSERT_TRUE(place.group >= 0 && place.group < layout.groups());
    ASSERT_TRUE(place.layer >= 0 && place.layer < layout.layers);
    EXPECT_EQ(layout.windows[place.group], config.layers[layer].window);
    EXPECT_TRUE(places.emplace(place.group, place.layer).second);
  }
}

TEST(KvLayoutTest, ModelsWithoutWindowsHaveOneGroup) {
  for (const ModelConfig& config :
       {Config(32, 0, 0), Config(32, 4096, 0, /*max_positions=*/4096)}) {
    const KvLayout layout = KvLayoutOf(config);
    EXPECT_EQ(layout.layers, 32);
    EXPECT_EQ(layout.groups(), 1);
    EXPECT_THAT(layout.windows, IsEmpty());
    EXPECT_THAT(layout.places, IsEmpty());
    EXPECT_EQ(layout.PagesOf(100), 7);
    EXPECT_EQ(layout.blocks_per_page(131072), 1);
  }
  EXPECT_THAT(KvLayoutOf(Config(32, 1024, 2), /*free_windows=*/false).windows, IsEmpty());
}

struct Known {
  const char* name;
  int layers, window, period;
  int of_page;  // layers
  std::vector<int> windows;
};

TEST(KvLayoutTest, KnownModels) {
  const Known models[] = {
      {"Mistral 7B v0.1", 32, 4096, 0, 32, {4096}},
      {"Gemma 2 9B", 42, 4096, 2, 21, {0, 4096}},
      {"Gemma 3 270M", 18, 512, 6, 3, {0, 512, 512, 512, 512, 512}},
      {"Gemma 3 1B", 26, 512, 6, 4, {0, 512, 512, 512, 512, 512, 512}},
      {"Gemma 3 4B", 34, 1024, 6, 5, {0, 1024, 1024, 1024, 1024, 1024, 1024}},
      {"Gemma 3 12B", 48, 1024, 6, 8, {0, 1024, 1024, 1024, 1024, 1024}},
      {"Gemma 3 27B", 62, 1024, 6, 11, {0, 1024, 1024, 1024, 1024, 1024}},
  };
  for (const Known& model : models) {
    SCOPED_TRACE(model.name);
    const ModelConfig config = Config(model.layers, model.window, model.period);
    const KvLayout layout = KvLayoutOf(config);
    EXPECT_EQ(layout.layers, model.of_page);
    EXPECT_EQ(layout.windows, model.windows);
    CheckPlaces(config, layout);
    // At most a tenth is left empty, in short contexts.
    EXPECT_LE(layout.groups() * layout.layers, model.layers * 1.1);
  }
}

TEST(KvLayoutTest, AtMostAsManyGroupsAsThereMayBe) {
  for (int layers = 1; layers <= 80; ++layers) {
    for (const int period : {2, 3, 4, 5, 6, 7, 40}) {
      const ModelConfig config = Config(layers, 128, period);
      const KvLayout layout = KvLayoutOf(config);
      EXPECT_LE(layout.groups(), kMostKvGroups);
      CheckPlaces(config, layout);
    }
  }
  // Windows of more lengths than there may be groups: everything is kept.
  ModelConfig config = Config(20, 0, 0);
  for (int layer = 0; layer < 20; ++layer) config.layers[layer].window = 100 + layer;
  EXPECT_EQ(KvLayoutOf(config).groups(), 1);
  EXPECT_EQ(KvLayoutOf(config).layers, 20);
}

TEST(KvLayoutTest, GroupsThatReachFarthestComeFirst) {
  ModelConfig config = Config(6, 100, 3);
  config.layers[0].window = 300;
  EXPECT_THAT(KvLayoutOf(config).windows, ElementsAre(0, 0, 300, 100, 100, 100));
  EXPECT_EQ(KvLayoutOf(config).layers, 1);
}

// At positions from 1000 on a window of 100 hides 901 tokens: 56 blocks.
TEST(KvLayoutTest, PagesOfASequence) {
  const KvLayout layout = KvLayoutOf(Config(4, 100, 2));
  ASSERT_THAT(layout.windows, ElementsAre(0, 100));
  EXPECT_EQ(layout.PagesOf(0), 0);
  EXPECT_EQ(layout.PagesOf(100), 7 + 7);
  EXPECT_EQ(layout.PagesOf(1000), 63 + 63 - 56);
  EXPECT_EQ(layout.blocks_per_page(131072), 1);
  EXPECT_EQ(KvLayoutOf(Config(4, 100, 0)).blocks_per_page(1000), 10);
}

}  // namespace
}  // namespace coppice::model
