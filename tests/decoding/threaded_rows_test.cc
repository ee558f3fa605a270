// If a row source offers threads, rows are read and slots are drawn concurrently. Every round must
// decide the same as on one thread, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "decoding/method.h"
#include "sampling/logits_processing.h"
#include "tests/decoding/random_setting.h"
#include "tests/testing/shuffled_threads.h"

namespace coppice::decoding {
namespace {

// All rows of a round, computed before any is requested.
class StoredRows : public sampling::RowSource {
 public:
  StoredRows(const test::HashLm& lm, absl::Span<const uint64_t> root_hash,
             const DraftForest& forest, bool in_f32)
      : in_f32_(in_f32) {
    for (const uint64_t hash : test::RowHashes(root_hash, forest)) {
      f64_.push_back(lm.TargetLogProbs(hash));
      f32_.emplace_back(f64_.back().begin(), f64_.back().end());
    }
  }
  absl::Span<const float> Logits(int row) override {
    CountRead();
    return f32_[row];
  }
  absl::Span<const double> LogProbs(int row) override {
    if (in_f32_) return {};
    CountRead();
    return f64_[row];
  }
  HostThreads* threads() override { return threads_; }

  void Lend(HostThreads* threads) { threads_ = threads; }
  int TakeRowsRead() { return read_.exchange(0); }
  bool read_elsewhere() const { return read_elsewhere_; }  // on another thread than made the rows

 private:
  void CountRead() {
    ++read_;
    if (std::this_thread::get_id() != home_) read_elsewhere_ = true;
  }

  const bool in_f32_;
  std::vector<std::vector<double>> f64_;
  std::vector<std::vector<float>> f32_;
  HostThreads* threads_ = HostThreads::Serial();
  const std::thread::id home_ = std::this_thread::get_id();
  std::atomic<int> read_{0};
  std::atomic<bool> read_elsewhere_{false};
};

std::vector<uint64_t> Bits(absl::Span<const double> values) {
  std::vector<uint64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<uint64_t>(value));
  return bits;
}

void ExpectSame(const Verdict& a, const Verdict& b) {
  EXPECT_EQ(a.node_path, b.node_path);
  const DecodingStats &x = a.stats, &y = b.stats;
  EXPECT_EQ(x.layers, y.layers);
  EXPECT_EQ(x.draft_depth_sum, y.draft_depth_sum);
  EXPECT_EQ(x.drafted_nodes, y.drafted_nodes);
  EXPECT_EQ(x.accepted_nodes, y.accepted_nodes);
  EXPECT_EQ(x.accepted_by_layer, y.accepted_by_layer);
  EXPECT_EQ(a.outputs_by_layer, b.outputs_by_layer);
  EXPECT_EQ(a.distinct_by_layer, b.distinct_by_layer);
  EXPECT_EQ(Bits({a.min_margin, x.overlap_sum}), Bits({b.min_margin, y.overlap_sum}));
  EXPECT_EQ(x.overlap_layers, y.overlap_layers);
}

void ExpectSame(const DraftState& a, const DraftState& b) {
  EXPECT_EQ(a.root_hash, b.root_hash);
  EXPECT_EQ(Bits(a.root_score), Bits(b.root_score));
  EXPECT_EQ(a.root_multiplicity, b.root_multiplicity);
  EXPECT_EQ(a.slot_root, b.slot_root);
  EXPECT_EQ(a.layers_committed, b.layers_committed);
  EXPECT_EQ(a.slot_token, b.slot_token);
  EXPECT_EQ(Bits(a.slot_log_prob), Bits(b.slot_log_prob));
  EXPECT_EQ(a.known_roots, b.known_roots);
  ASSERT_EQ(a.known_children.size(), b.known_children.size());
  for (size_t i = 0; i < a.known_children.size(); ++i) {
    const DraftState::KnownChild &x = a.known_children[i], &y = b.known_children[i];
    EXPECT_EQ(x.root, y.root);
    EXPECT_EQ(x.token, y.token);
    EXPECT_EQ(Bits({x.score, x.key}), Bits({y.score, y.key}));
  }
}

void ExpectSame(const BeamDecoder& a, const BeamDecoder& b) {
  ASSERT_EQ(a.finished(), b.finished());
  EXPECT_EQ(a.layers_committed(), b.layers_committed());
  EXPECT_EQ(a.StablePrefix(), b.StablePrefix());
  EXPECT_THAT(a.roots(), testing::ElementsAreArray(b.roots()));
  ASSERT_EQ(a.last_layer().size(), b.last_layer().size());
  for (size_t i = 0; i < a.last_layer().size(); ++i) {
    const LayerOutput &x = a.last_layer()[i], &y = b.last_layer()[i];
    EXPECT_EQ(a.paths().hash(x.path), b.paths().hash(y.path));
    EXPECT_EQ(x.path, y.path);
    EXPECT_EQ(Bits({x.log_score}), Bits({y.log_score}));
    EXPECT_EQ(x.finished, y.finished);
  }
  if (!a.finished()) return ExpectSame(a.draft_state(), b.draft_state());
  const std::vector<Hypothesis> results[] = {a.Result(), b.Result()};
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    const Hypothesis &x = results[0][i], &y = results[1][i];
    EXPECT_EQ(x.tokens, y.tokens);
    EXPECT_EQ(Bits({x.joint_log_probability, x.score}), Bits({y.joint_log_probability, y.score}));
    EXPECT_EQ(x.finished, y.finished);
  }
}

// Counts rounds in which rows of several beams of one layer were read concurrently.
struct Together {
  int whole = 0, sparse = 0, in_f32 = 0, joint = 0;
};

// One decode on one thread and one on several, side by side.
void DecodeTwice(const DecodeSetting& s, int threads, bool in_f32, Together* together) {
  const auto alone = MakeBeamDecoder(s.params).value();
  const auto threaded = MakeBeamDecoder(s.params).value();
  test::ShuffledThreads lent(threads, s.params.seed);
  while (!alone->finished()) {
    const DraftState state = alone->draft_state();
    const int depth = std::min(s.depth, alone->max_useful_depth());
    DraftForest forest = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    if (depth > 0) {
      const auto drafter = MakeDrafter(s.params, state, s.draft_width).value();
      forest = test::HashLmForest(s.lm, state, drafter.get(), depth, s.quality);
    }
    StoredRows rows(s.lm, state.root_hash, forest, in_f32);
    const Verdict expected = alone->Advance(forest, &rows);
    const int rows_read = rows.TakeRowsRead();
    rows.Lend(&lent);
    ExpectSame(threaded->Advance(forest, &rows), expected);
    ExpectSame(*threaded, *alone);
    EXPECT_EQ(rows.TakeRowsRead(), rows_read);
    if (testing::Test::HasFailure()) return;
    if (!rows.read_elsewhere()) continue;
    ++(sampling::KeepsWholeRow(s.params.sampling) ? together->whole : together->sparse);
    together->in_f32 += in_f32 ? 1 : 0;
    together->joint += sampling::IsJoint(s.params.sampling.mode) ? 1 : 0;
  }
}

struct Case {
  const MethodRow* method;
  sampling::DecodingKind kind;

  // Methods that decide over the joint layer, or parent first, read the rows of a layer
  // concurrently. dsbd_single_kv, which is lossy, mostly has one row.
  bool reads_together() const {
    return (method->joint_sampling && method->lossless) || method->name == "gumbel_coupling";
  }
};

// Every method with every beam decoding that it serves.
std::vector<Case> EveryBeamService() {
  std::vector<Case> cases;
  for (const MethodRow& row : Methods()) {
    for (sampling::DecodingKind kind : row.serves) {
      if (kind != sampling::DecodingKind::kMultinomial) cases.push_back({&row, kind});
    }
  }
  return cases;
}

class ThreadedRowsTest : public testing::TestWithParam<Case> {
 protected:
  // At least two beams and some rounds.
  static DecodeSetting Setting(uint64_t seed) {
    DecodeSetting s = RandomSetting(seed, GetParam().kind);
    const MethodRow& row = *GetParam().method;
    s.params.method = &row;
    s.params.set_semantics = s.params.set_semantics && row.reads("beam_duplicates");
    if (row.joint_sampling && seed % 3 == 0)
      SetSamplingScope(sampling::SamplingScope::kJoint, &s.params);
    s.params.beam_width = s.params.num_hypotheses = std::max(2, s.params.beam_width);
    s.draft_width = std::max(s.draft_width, s.params.beam_width);
    s.params.max_tokens += 4;
    return s;
  }
};

INSTANTIATE_TEST_SUITE_P(Methods, ThreadedRowsTest, testing::ValuesIn(EveryBeamService()),
                         [](const auto& info) {
                           return std::string(info.param.method->name) + "_" +
                                  std::string(sampling::DecodingKindName(info.param.kind));
                         });

TEST_P(ThreadedRowsTest, DecideAsOnOneThread) {
  Together together;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    DecodeTwice(Setting(seed), /*threads=*/2 + static_cast<int>(seed % 3), seed % 2 == 0,
                &together);
    if (HasFailure()) return;
  }
  if (!GetParam().reads_together()) return;
  EXPECT_GT(together.whole, 20);
  EXPECT_GT(together.sparse, 20);
  EXPECT_GT(together.in_f32, 20);
  if (GetParam().method->joint_sampling) {
    EXPECT_GT(together.joint, 10);
  }
}

// Rows that are longer than a block of the kernels. Top-p and min-p cut them to lists of different
// lengths.
TEST_P(ThreadedRowsTest, DecideLargeRowsAsOnOneThread) {
  Together together;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = Setting(1000 + seed);
    s.lm.vocab_size = 300 + static_cast<int>(seed) * 60;
    s.params.beam_width = s.params.num_hypotheses = 3 + static_cast<int>(seed % 6);
    s.draft_width = s.params.beam_width + 2;
    s.depth = std::min(s.depth, 3);
    // beam search takes no sampling parameters
    if (s.params.kind != sampling::DecodingKind::kBeamSearch) {
      s.params.sampling.mode =
          seed % 2 == 0 ? sampling::SamplingScope::kRow : sampling::SamplingScope::kRowRaw;
      s.params.sampling.top_k = seed % 4 == 3 ? 40 : 0;
      s.params.sampling.top_p = seed % 4 == 1 || seed % 4 == 3 ? 0.7 : 1;
      s.params.sampling.min_p = seed % 4 == 2 ? 0.05 : 0;
    }
    DecodeTwice(s, /*threads=*/3, seed % 3 == 0, &together);
    if (HasFailure()) return;
  }
  if (!GetParam().reads_together()) return;
  EXPECT_GT(together.whole, 5);
  EXPECT_GT(together.sparse, 5);
}

}  // namespace
}  // namespace coppice::decoding
