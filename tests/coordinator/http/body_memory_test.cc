#include "coordinator/http/body_memory.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace coppice::coordinator {
namespace {

constexpr size_t kFree = BodyMemory::kFree;

class BodyMemoryTest : public ::testing::Test {
 protected:
  std::shared_ptr<BodyMemory::Share> Begin(int id) {
    return std::make_shared<BodyMemory::Share>(memory_, [this, id] { gave_up_.push_back(id); });
  }

  const std::shared_ptr<BodyMemory> memory_ = std::make_shared<BodyMemory>(1000);
  std::vector<int> gave_up_;
};

TEST_F(BodyMemoryTest, CountsWhatIsNotFreeUntilTheShareEnds) {
  auto share = Begin(0);
  EXPECT_TRUE(share->Grow(kFree));
  EXPECT_EQ(memory_->held(), 0);
  EXPECT_TRUE(share->Grow(kFree + 10));
  EXPECT_TRUE(share->Grow(kFree + 1000));
  EXPECT_EQ(memory_->held(), 1000);
  share->Arrived();
  EXPECT_EQ(memory_->held(), 1000);
  std::thread([&] { share = nullptr; }).join();
  EXPECT_EQ(memory_->held(), 0);
}

TEST_F(BodyMemoryTest, TheLargestThatArrivesGivesUp) {
  const auto small = Begin(0), large = Begin(1), other = Begin(2);
  EXPECT_TRUE(large->Grow(kFree + 600));
  EXPECT_TRUE(small->Grow(kFree + 300));
  EXPECT_TRUE(other->Grow(kFree + 200));
  EXPECT_EQ(gave_up_, std::vector<int>{1});
  EXPECT_EQ(memory_->held(), 500);
  EXPECT_TRUE(small->Grow(kFree + 500));
  EXPECT_FALSE(small->Grow(kFree + 900));  // it is the largest itself
  EXPECT_EQ(gave_up_, std::vector<int>{1});
  EXPECT_EQ(memory_->held(), 200);
}

TEST_F(BodyMemoryTest, OfEqualOnesTheFirstGivesUp) {
  const auto first = Begin(0), second = Begin(1), third = Begin(2);
  EXPECT_TRUE(second->Grow(kFree + 400));
  EXPECT_TRUE(first->Grow(kFree + 400));
  EXPECT_TRUE(third->Grow(kFree + 400));
  EXPECT_EQ(gave_up_, std::vector<int>{0});
}

// What has arrived is read soon; what has not may never be.
TEST_F(BodyMemoryTest, WhatHasArrivedIsKept) {
  const auto arrived = Begin(0);
  EXPECT_TRUE(arrived->Grow(kFree + 900));
  arrived->Arrived();
  const auto late = Begin(1);
  EXPECT_TRUE(late->Grow(kFree));  // small ones are always served
  EXPECT_FALSE(late->Grow(kFree + 101));
  EXPECT_TRUE(gave_up_.empty());
  EXPECT_EQ(memory_->held(), 900);
}

}  // namespace
}  // namespace coppice::coordinator
