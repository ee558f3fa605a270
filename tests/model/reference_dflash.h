// A naive forward pass of block drafters in double precision, with the stored weights, as their
// publishers define it: DFlash (arXiv 2602.06036) and DSpark. It shares no code with model/ or
// kernels/.
#pragma once

#include <vector>

#include "base/types.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

class ReferenceDFlash {
 public:
  // Both must outlive it.
  ReferenceDFlash(const test::TinyLlama& draft, const test::TinyLlama& target)
      : draft_(draft), target_(target) {}

  // The state of a token: outputs of the chosen layers of the target, one after the other, joined by
  // fc and normed. [hidden]
  std::vector<double> State(const std::vector<double>& outputs) const;
  // Logits of every row of a block [rows][vocab]: `root` and rows - 1 masks, after a context of
  // which token t has context[t], [hidden]. Without the bias of DSpark.
  std::vector<std::vector<double>> BlockLogits(const std::vector<std::vector<double>>& context,
                                               TokenId root, int rows) const;
  // The bias of the logits by the token before, [vocab].
  std::vector<double> MarkovBias(TokenId before) const;

 private:
  using Row = std::vector<double>;
  Row Linear(const std::string& name, const Row& x) const;
  Row Normed(const std::string& name, const Row& x) const;
  // Heads of x after its norm ("": none) and rotation by a position.
  Row Heads(const std::string& norm, Row x, int position) const;
  const test::TinyTensor& Find(const std::string& own, const std::string& of_target) const;
  double Number(const char* field) const;

  const test::TinyLlama& draft_;
  const test::TinyLlama& target_;
};

}  // namespace coppice::model
