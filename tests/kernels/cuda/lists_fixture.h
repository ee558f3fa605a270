// Tasks for the kernels of candidate_lists.h, and what they leave.
#pragma once

#include <memory>
#include <vector>

#include "base/types.h"
#include "kernels/cuda/ops/candidate_lists.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

// Tokens [begin, end) of a vocabulary: those of some of its chunks.
struct TestShard {
  int64_t vocab = 0, begin = 0, end = 0;
  static TestShard Of(int64_t vocab, int rank = 0, int ranks = 1) {
    const auto chunk = [&](int r) { return kLseChunks * r / ranks * vocab / kLseChunks; };
    return {vocab, chunk(rank), chunk(rank + 1)};
  }
};

// What the record of a list says.
struct TestRecord {
  ListHeader header;
  std::vector<float> biased;
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

class TestLists {
 public:
  // logits [rows, shard.end - shard.begin].
  TestLists(const TestShard& shard, const std::vector<float>& logits)
      : logits_(logits), columns_(shard.end - shard.begin) {
    rows_.logits = logits_.data();
    rows_.columns = columns_;
    rows_.first_token = shard.begin;
    rows_.vocab = shard.vocab;
  }

  std::vector<ListTask> lists;
  std::vector<SumTask> sums;
  std::vector<TokenBias> bias;
  int spare_room = 0;  // of the grids

  // Runs everything; results are read below.
  void Run() {
    const int32_t pieces = PiecesOf(rows_);
    size_t entries = 0, words = 0;
    for (ListTask& list : lists) {
      list.entries = static_cast<int64_t>(entries);
      list.record = static_cast<int32_t>(words);
      entries += static_cast<size_t>(pieces) * list.want;
      words += kHeaderWords + 2 * list.want;
      if (list.first_of_row != 0) words += list.bias_end - list.bias_begin;
    }
    DeviceArray<ListTask> list_array(lists);
    DeviceArray<SumTask> sum_array(sums);
    DeviceArray<TokenBias> bias_array(bias);
    DeviceArray<ListEntry> entry_array(entries);
    DeviceArray<int32_t> bad_array(lists.size() * pieces);
    DeviceArray<ChunkSums> chunk_sums(sums.size());
    DeviceArray<uint32_t> records(words);
    DeviceArray<DeviceLists> tasks(1);
    tasks[0].lists = list_array.data();
    tasks[0].sums = sum_array.data();
    tasks[0].bias = bias_array.data();
    tasks[0].entries = entry_array.data();
    tasks[0].bad_tokens = bad_array.data();
    tasks[0].chunk_sums = chunk_sums.data();
    tasks[0].records = records.data();
    tasks[0].list_count = static_cast<int32_t>(lists.size());
    tasks[0].sum_count = static_cast<int32_t>(sums.size());
    const ListsView view = {tasks.data(), tasks[0].list_count + spare_room,
                            tasks[0].sum_count + spare_room};
    SumRows(view, rows_, nullptr);
    ListPieces(view, rows_, nullptr);
    MergePieces(view, rows_, nullptr);
    WaitForDevice();
    sums_ = chunk_sums.Copy();
    records_ = records.Copy();
  }

  const ChunkSums& Sums(int task) const { return sums_[task]; }
  TestRecord Record(int list) const {
    const ListTask& task = lists[list];
    const uint32_t* words = records_.data() + task.record;
    TestRecord record;
    std::memcpy(static_cast<void*>(&record.header), words, sizeof record.header);
    words += kHeaderWords;
    if (task.first_of_row != 0) {
      for (int i = task.bias_begin; i < task.bias_end; ++i)
        record.biased.push_back(__uint_as_float(*words++));
    }
    for (int i = 0; i < record.header.count; ++i) {
      record.tokens.push_back(static_cast<TokenId>(words[2 * i]));
      record.logits.push_back(__uint_as_float(words[2 * i + 1]));
    }
    return record;
  }
  float Logit(int row, TokenId token) const {
    return logits_[row * columns_ + token - rows_.first_token];
  }

 private:
  DeviceArray<float> logits_;
  int64_t columns_;
  LogitRows rows_;
  std::vector<ChunkSums> sums_;
  std::vector<uint32_t> records_;
};

}  // namespace coppice::kernels::cuda
