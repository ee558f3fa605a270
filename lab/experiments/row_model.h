// Toy models for the laboratory. A row is a pure function of the prompt and the path hash, so
// sequences need no state. Immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decoding/params.h"
#include "lab/experiments/model_pair.h"

namespace coppice::lab {

class RowModel {
 public:
  virtual ~RowModel() = default;
  virtual int vocab_size() const = 0;
  virtual int num_prompts() const = 0;
  // Logits [vocab] of target and draft after the path with this hash.
  virtual std::vector<float> Target(int prompt, uint64_t hash) const = 0;
  virtual std::vector<float> Draft(int prompt, uint64_t hash) const = 0;
  virtual std::vector<std::pair<std::string, std::string>> Describe() const = 0;
};

// The shape of a table's rows. The draft's logits are the target's plus `noise` times independent
// logistic noise; 0 = the same model.
struct TableOptions {
  int vocab_size = 64;
  uint64_t seed = 1;
  double noise = 0.7;
  double zipf_exponent = 0;  // > 0: p ~ rank^-s in random order; 0: logits of logistic noise
  double spread = 1.5;       // of those logits
};
std::unique_ptr<RowModel> MakeRandomTables(const TableOptions& options);

// HashLM of tests/golden/README.md: salt selects the target, noise the draft.
struct HashLmOptions {
  int vocab_size = 32;
  uint64_t salt = 1;
  int power = 6;
  uint64_t noise = 2;
};
std::unique_ptr<RowModel> MakeHashLmRows(const HashLmOptions& options);

// Given rows: prompt i has rows.TargetRow(i) and rows.DraftRow(i) after every path.
std::unique_ptr<RowModel> MakeRecordedRows(PathRows rows);

// A pair that decodes on the rows of a model.
std::unique_ptr<ModelPair> MakeTablePair(std::unique_ptr<RowModel> rows);

}  // namespace coppice::lab
