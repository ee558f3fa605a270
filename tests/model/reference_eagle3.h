// A second, naive forward pass of EAGLE-3 heads in double precision, with the stored weights, as the
// paper and its published implementations define it. It is the reference of the tests of heads and
// shares no code with model/ or kernels/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

class ReferenceEagle3 {
 public:
  using Row = std::vector<double>;

  // head: as tests/testing/tiny_eagle3.h makes it, in either layout. target: has the embedding, and a
  // whole head, if the draft has none.
  ReferenceEagle3(const test::TinyLlama& head, const test::TinyLlama& target);

  // The state of a token: the target's hidden states after each of the head's layers, in the order
  // of the layers, normed as the head asks, then joined.
  Row Join(const std::vector<Row>& hidden) const;

  // Adds a row that comes after row `before` and those before that; -1: it is the first. state: of the
  // token before it. Returns its number.
  int Add(int before, TokenId token, const Row& state);
  // [vocab] the logits after a row: of ids that the head does not have -infinity.
  const Row& logits(int row) const { return rows_[row].logits; }
  // What the row hands on to rows after it, in full precision.
  const Row& state(int row) const { return rows_[row].state; }

 private:
  struct Computed {
    int before = -1;
    int position = 0;
    Row k, v, state, logits;
  };
  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }
  Row Linear(const std::string& name, const Row& x) const;
  Row Normed(const std::string& name, const Row& x) const;
  // Norms and rotates each head.
  void FinishHeads(const std::string& norm, int position, Row* heads) const;
  // Of the new row, which is the last one.
  Row Attend(const Row& q) const;
  Row Scattered(const Row& kept) const;

  std::map<std::string, test::TinyTensor> tensors_;  // by the names of the authors
  int vocab_ = 0, hidden_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, window_ = 0;
  double epsilon_ = 0, theta_ = 0;
  bool norm_whole_ = false, norm_each_ = false, normed_residual_ = false, normed_output_ = false;
  std::vector<Computed> rows_;
};

}  // namespace coppice::model
