// Expects a conversion to fail with InvalidArgument and a message that contains a given text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace coppice::proto {

template <typename Result>
void ExpectInvalid(const Result& result, const char* names) {
  ASSERT_FALSE(result.ok()) << "accepted, though " << names;
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr(names));
}

}  // namespace coppice::proto
