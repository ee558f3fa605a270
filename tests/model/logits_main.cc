// Prints the logits that the forward pass gives for tokens, one line a token, for comparison with
// other programs (tests/model/with_transformers.py, quantised_with_transformers.py).
//   model_logits DIR ID...             the model in DIR, as f32
//   model_logits --tiny NAME DIR       writes a tiny checkpoint of a family into DIR
//   model_logits --names               the names of these checkpoints
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/model/model_harness.h"
#include "tests/testing/tiny_family.h"

namespace coppice::model {
namespace {

int PrintLogits(const std::string& dir, const std::vector<TokenId>& tokens) {
  auto loaded = LoadForTest({.dir = dir, .dtype = "f32", .max_rows = 512});
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
    return 1;
  }
  const int count = static_cast<int>(tokens.size());
  const auto logits = loaded->Run(PlanSketch(count).Prefix(tokens, 0, count, count).plan);
  if (!logits.ok()) return 1;
  const size_t vocab = logits->size() / count;
  for (size_t i = 0; i < logits->size(); ++i)
    std::printf("%.9g%c", (*logits)[i], (i + 1) % vocab == 0 ? '\n' : ' ');
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "--names") {
    for (const std::string& name : test::TinyFamilies()) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "--tiny") {
    test::WriteTinyLlama(test::MakeTinyFamily(arguments[1]), arguments[2]);
    return 0;
  }
  if (arguments.size() < 2) {
    std::fprintf(stderr, "usage: model_logits DIR ID... | --tiny NAME DIR | --names\n");
    return 2;
  }
  std::vector<TokenId> tokens;
  for (size_t i = 1; i < arguments.size(); ++i) tokens.push_back(std::atoi(arguments[i].c_str()));
  return PrintLogits(arguments[0], tokens);
}

}  // namespace
}  // namespace coppice::model

int main(int argc, char** argv) { return coppice::model::Main({argv + 1, argv + argc}); }
