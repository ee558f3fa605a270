// Compares a run with the reference without drafts: the same tokens and ends, scores to 1e-12.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/decoding/reference_decoder.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {

inline void ExpectReference(const test::DecodeRun& run, const std::vector<ReferenceBeam>& want,
                            const ReferenceDecoder& reference) {
  ASSERT_EQ(run.layers, reference.layers);
  ASSERT_EQ(run.result.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double tolerance = 1e-12 * (1 + std::abs(want[i].log_score) + want[i].penalty);
    EXPECT_EQ(run.result[i].tokens, want[i].path);
    EXPECT_NEAR(run.result[i].joint_log_probability, want[i].log_score, tolerance);
    EXPECT_NEAR(run.result[i].score, reference.Score(want[i]), tolerance);
    EXPECT_EQ(run.result[i].finished, want[i].finished);
  }
}

}  // namespace coppice::decoding
