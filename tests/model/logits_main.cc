// Prints the logits that the forward pass gives for tokens, one line a token, for comparison with
// other programs (tests/model/with_transformers.py, quantised_with_transformers.py).
//   model_logits DIR ID...             the model in DIR, as f32
//   model_logits --tiny NAME DIR       writes a tiny checkpoint of a family into DIR
//   model_logits --names               the names of these checkpoints
//   model_logits --tiny-drafter DIR TARGET   writes a tiny block drafter and its target
//   model_logits --block DIR TARGET ROWS ROOT ID...   the states that the target keeps of the tokens,
//                                      then the logits of a block of ROWS rows after them
// with_published_drafter.py reads the last two.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "tests/model/model_harness.h"
#include "tests/testing/tiny_dflash.h"
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

void PrintRow(absl::Span<const float> row) {
  for (size_t i = 0; i < row.size(); ++i)
    std::printf("%.9g%c", row[i], i + 1 == row.size() ? '\n' : ' ');
}

absl::StatusOr<std::unique_ptr<ModelRunner>> LoadRunner(const std::string& dir,
                                                        const std::string& target,
                                                        const std::string& states_for,
                                                        comm::Communicator* single) {
  ModelRunnerOptions options;
  options.dir = dir;
  options.target = target;
  options.states_for = states_for;
  options.dtype = "f32";
  options.kv_bytes = 1 << 22;
  options.threads = 1;
  return ModelRunner::Load(options, single);
}

// Runs prefill rows for the tokens, with states if there are any: [tokens][columns].
absl::StatusOr<std::vector<int32_t>> RunPrefix(SequenceHandle sequence,
                                               const std::vector<TokenId>& tokens,
                                               absl::Span<const uint16_t> states,
                                               ModelRunner* runner) {
  StepBuilder step = runner->NewStep();
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int32_t> slots,
                           runner->blocks()->AppendPrefix(sequence, tokens));
  step.AddPrefixRows(sequence, tokens, slots);
  const size_t columns = states.size() / tokens.size();
  for (size_t t = 0; columns > 0 && t < tokens.size(); ++t)
    step.SetState(static_cast<int>(t), states.subspan(t * columns, columns));
  COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
  COPPICE_RETURN_IF_ERROR(runner->Wait().status());
  return slots;
}

absl::Status PrintBlock(const std::string& dir, const std::string& target, int rows, TokenId root,
                        const std::vector<TokenId>& tokens) {
  const auto single = comm::MakeSingleCommunicator();
  COPPICE_ASSIGN_OR_RETURN(const auto reads, LoadRunner(target, "", dir, single.get()));
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int32_t> slots,
                           RunPrefix(reads->blocks()->Open({}, nullptr), tokens, {}, reads.get()));
  const size_t columns = reads->state_columns();
  std::vector<uint16_t> states(tokens.size() * columns);
  COPPICE_RETURN_IF_ERROR(reads->ReadStates(slots, states.data()));
  for (size_t t = 0; t < tokens.size(); ++t) {
    std::vector<float> row;
    for (size_t c = 0; c < columns; ++c)
      row.push_back(kernels::Bf16ToFloat(states[t * columns + c]));
    PrintRow(row);
  }
  COPPICE_ASSIGN_OR_RETURN(const auto drafts, LoadRunner(dir, target, "", single.get()));
  const SequenceHandle sequence = drafts->blocks()->Open({}, nullptr);
  COPPICE_RETURN_IF_ERROR(RunPrefix(sequence, tokens, states, drafts.get()).status());
  StepBuilder step = drafts->NewStep();
  std::vector<KvNode> nodes;
  for (int row = 0; row < rows; ++row) {
    COPPICE_ASSIGN_OR_RETURN(
        const KvNode node,
        drafts->blocks()->AddNode(sequence, row == 0 ? kPrefixEnd : nodes.back(), /*token=*/0));
    nodes.push_back(node);
  }
  std::vector<TokenId> block(rows, drafts->config().block.mask);
  block[0] = root;
  step.AddBlockRows(sequence, nodes, block, std::vector<RowNeed>(rows));
  COPPICE_RETURN_IF_ERROR(drafts->Submit(std::move(step)));
  COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* const logits, drafts->Wait());
  for (int row = 0; row < rows; ++row) PrintRow(logits->Whole(row));
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "--tiny-drafter") {
    const test::TinyLlama target = test::MakeTinyLlama({.layers = 6});
    test::WriteTinyLlama(target, arguments[2]);
    test::WriteTinyLlama(test::MakeTinyDFlash(target, {.target_layers = {1, 2, 4}}), arguments[1]);
    return 0;
  }
  if (arguments.size() > 5 && arguments[0] == "--block") {
    std::vector<TokenId> tokens;
    for (size_t i = 5; i < arguments.size(); ++i) tokens.push_back(std::atoi(arguments[i].c_str()));
    const absl::Status printed =
        PrintBlock(arguments[1], arguments[2], std::atoi(arguments[3].c_str()),
                   std::atoi(arguments[4].c_str()), tokens);
    if (!printed.ok()) std::fprintf(stderr, "%s\n", std::string(printed.message()).c_str());
    return printed.ok() ? 0 : 1;
  }
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
