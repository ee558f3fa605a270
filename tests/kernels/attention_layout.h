// Attention over contexts of numbered tokens, which a test places in a KV pool as it likes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {

inline constexpr DType kKvTypes[] = {DType::kF32, DType::kBF16, DType::kI8};

struct AttentionShape {
  int q_heads;
  int kv_heads;
  int head_dim;
  DType dtype;
  int window = 0;
  float softcap = 0;
};

AttentionRule RuleOf(int head_dim);
AttentionRule RuleOf(const AttentionShape& shape);

// K (which = 1) and V (2) of a token, [kv_heads * head_dim], or its query (0), [q_heads *
// head_dim]. They depend only on the token's number. kNotANumber has none; of the others a value of
// each head of K or V is infinite.
inline constexpr int kNotANumber = -1, kInfiniteKey = -2, kInfiniteValue = -3;
std::vector<float> TokenVector(const AttentionShape& shape, int token, int which);
// K and V of a token as the pool holds them.
std::vector<float> StoredVector(const AttentionShape& shape, int token, int which);

// A row. Its query is that of the last token of `context`, and it sees all of `context`.
using Context = std::vector<int>;

Context Tokens(int count, int first = 0);
// Beams: a shared prefix, and for each row a chain of the given length.
std::vector<Context> Beams(int prefix, const std::vector<int>& chains);

// Places contexts in a pool, in slots that depend on the seed, and runs attention over them. paged:
// the layer is one of a second group, in which blocks have other pages, and blocks that no row sees
// have none.
class AttentionLayout {
 public:
  AttentionLayout(Backend* backend, const AttentionShape& shape, uint64_t seed, bool paged = false);

  // A segment whose block table holds these tokens. The first `shared` blocks are those of segment
  // `with`, which holds the same tokens there.
  void AddSegment(absl::Span<const int> tokens, int shared = 0, int with = 0);
  // Adds a row to the segment. The first prefix_len tokens of the context are in its table, the
  // others go to scratch.
  void AddRow(const Context& context, int prefix_len);

  // [rows, q_heads * head_dim]
  std::vector<float> Run();

 private:
  void Store(int token, int32_t slot);
  int64_t Width() const { return (shape_.q_heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  GroupSlots SecondGroup(const StepPlan& plan) const;

  Backend* backend_;
  AttentionShape shape_;
  const bool paged_;
  int64_t blocks_;
  std::unique_ptr<KvPool> pool_;
  std::vector<int32_t> free_blocks_, free_slots_;
  StepPlan plan_;
  std::vector<float> queries_;
};

// The row as the only one of a step of its own.
std::vector<float> RunAlone(Backend* backend, const AttentionShape& shape, const Context& context,
                            int prefix_len, uint64_t seed);

}  // namespace coppice::kernels
