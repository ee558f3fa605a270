// Attention over blocks that the tables of several requests have in common: every row has the bits
// that it has alone.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels/attention_layout.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

// A request: the first `shared` blocks of its table are those of request `with`, and hold the same
// tokens. Its rows see `prefix` tokens of its table and their own chain.
struct Request {
  int shared = 0, with = 0;
  Context table;
  struct Row {
    Context context;
    int prefix = 0;
  };
  std::vector<Row> rows;
};

class Requests {
 public:
  // `own` tokens after the shared blocks.
  Requests& Add(int shared, int with, int own) {
    Request request = {.shared = shared, .with = with};
    if (shared > 0) {
      const Context& first = all_[with].table;
      request.table.assign(first.begin(), first.begin() + shared * kBlockSize);
    }
    for (const int token : Tokens(own, next_)) request.table.push_back(token);
    next_ += own;
    all_.push_back(request);
    return *this;
  }
  Requests& Beams(const std::vector<int>& chains) {
    Request& request = all_.back();
    for (const int chain : chains) {
      Context context = request.table;
      for (const int token : Tokens(chain, next_)) context.push_back(token);
      next_ += chain;
      request.rows.push_back({context, static_cast<int>(request.table.size())});
    }
    return *this;
  }
  // The last `rows` tokens of the table.
  Requests& Prefill(int rows) {
    Request& request = all_.back();
    const auto size = static_cast<int>(request.table.size());
    for (int n = size - rows + 1; n <= size; ++n)
      request.rows.push_back({{request.table.begin(), request.table.begin() + n}, n});
    return *this;
  }
  const std::vector<Request>& all() const { return all_; }

 private:
  std::vector<Request> all_;
  int next_ = 0;
};

// None, some or all blocks in common, also within one another; beams and chunks of prompts. A
// request's rows are not beside those that it shares with.
Requests Mixed() {
  Requests requests;
  requests.Add(0, 0, 160 + 23).Beams({1, 5, 20});  // 0: 10 blocks that others share, and more
  requests.Add(0, 0, 60).Beams({3});               // 1: alone
  requests.Add(10, 0, 30).Prefill(12);             // 2: a chunk of a prompt
  requests.Add(5, 0, 40).Beams({1, 17});           // 3: parts from the others after 5 blocks
  requests.Add(10, 0, 0).Beams({1});               // 4: nothing of its own
  requests.Add(7, 3, 9).Prefill(5);                // 5: shares 7 blocks with 3, so 5 with 0
  requests.Add(10, 0, 7).Beams({2, 2});            // 6
  requests.Add(11, 0, 12).Beams({4});              // 7: shares one block more with 0
  requests.Add(1, 1, 50).Prefill(50);              // 8: one block of 1
  requests.Add(5, 3, 0).Beams({30});               // 9: a chain where others have blocks
  requests.Add(11, 2, 0).Prefill(3);               // 10: its last tokens are in a shared block
  return requests;
}

class SharedPrefixTest : public KernelTest {
 protected:
  std::vector<std::vector<float>> AloneRows(const AttentionShape& shape, const Requests& requests) {
    std::vector<std::vector<float>> rows;
    for (const Request& request : requests.all()) {
      for (const Request::Row& row : request.rows)
        rows.push_back(RunAlone(single_.get(), shape, row.context, row.prefix, 3));
    }
    return rows;
  }
  void ExpectBitsOf(const std::vector<std::vector<float>>& alone, Backend* backend,
                    const AttentionShape& shape, const Requests& requests, bool paged) {
    AttentionLayout layout(backend, shape, 2, paged);
    for (const Request& request : requests.all()) {
      layout.AddSegment(request.table, request.shared, request.with);
      for (const Request::Row& row : request.rows) layout.AddRow(row.context, row.prefix);
    }
    const std::vector<float> batch = layout.Run();
    const int64_t width = shape.q_heads * shape.head_dim;
    ASSERT_EQ(batch.size(), alone.size() * width);
    for (size_t r = 0; r < alone.size(); ++r) {
      ASSERT_EQ(std::memcmp(alone[r].data(), batch.data() + r * width, width * sizeof(float)), 0)
          << "row " << r << ", " << backend->description() << ", " << DTypeName(shape.dtype)
          << ", head_dim " << shape.head_dim << ", " << shape.kv_heads << " KV heads, window "
          << shape.window << (paged ? ", pages" : "");
    }
  }
};

TEST_P(SharedPrefixTest, EveryRowHasTheBitsThatItHasAlone) {
  const Requests requests = Mixed();
  for (const DType dtype : kKvTypes) {
    for (const AttentionShape& shape :
         {AttentionShape{4, 4, 32, dtype}, AttentionShape{6, 2, 64, dtype},
          AttentionShape{3, 1, 128, dtype}, AttentionShape{2, 1, 20, dtype},
          AttentionShape{6, 2, 64, dtype, 7}, AttentionShape{3, 1, 64, dtype, 70},
          AttentionShape{2, 2, 32, dtype, 33, 5.0f}}) {
      const auto alone = AloneRows(shape, requests);
      for (Backend* backend : {single_.get(), team_.get()}) {
        for (const bool paged : {false, true}) {
          if (paged && shape.window == 0) continue;
          ExpectBitsOf(alone, backend, shape, requests, paged);
        }
      }
    }
  }
}

// So many rows that they make several units, and with one KV head several threads share them.
TEST_P(SharedPrefixTest, ManyRequestsHaveTheBitsThatTheyHaveAlone) {
  Requests requests;
  requests.Add(0, 0, 320).Beams({1});
  for (int i = 1; i < 20; ++i) requests.Add(20, 0, 3 * i).Beams({1 + i % 3});
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    for (const AttentionShape& shape :
         {AttentionShape{1, 1, 64, dtype}, AttentionShape{7, 1, 64, dtype}}) {
      const auto alone = AloneRows(shape, requests);
      for (Backend* backend : {single_.get(), team_.get()})
        ExpectBitsOf(alone, backend, shape, requests, /*paged=*/false);
    }
  }
}

// A request that sees the beginning of a block reads nothing of the rest, which another one sees.
TEST_P(SharedPrefixTest, WhatAnotherRequestSeesOfABlockDoesNotCount) {
  for (const DType dtype : kKvTypes) {
    for (const int head_dim : {32, 64}) {
      const AttentionShape shape = {2, 1, head_dim, dtype};
      Context table = Tokens(32);
      table[20] = kNotANumber;
      const Context seen = Tokens(20);
      AttentionLayout layout(single_.get(), shape, 2);
      layout.AddSegment(table);
      for (const int rows : {32, 31, 32})
        layout.AddRow(Context(table.begin(), table.begin() + rows), rows);
      layout.AddSegment(table, 2, 0);
      layout.AddRow(seen, 20);
      const std::vector<float> batch = layout.Run();
      const std::vector<float> alone = RunAlone(single_.get(), shape, seen, 20, 3);
      const int64_t width = shape.q_heads * shape.head_dim;
      EXPECT_EQ(std::memcmp(alone.data(), batch.data() + 3 * width, width * sizeof(float)), 0)
          << DTypeName(dtype) << ", head_dim " << head_dim;
    }
  }
}

COPPICE_ON_ALL_TARGETS(SharedPrefixTest);

}  // namespace
}  // namespace coppice::kernels
