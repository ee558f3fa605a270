// Prints what an EAGLE-3 head makes of tokens behind its target, for comparison with another program
// (tests/model/heads_with_transformers.py): for each token from the second on a line with the state
// that its row begins with, and a line with its logits.
//   model_head_logits HEAD TARGET DRAFTED ID...   both folders as f32; the last DRAFTED tokens take
//                                                 the states of the head itself
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

namespace coppice::model {
namespace {

using States = std::vector<uint16_t>;  // [rows, columns] bf16

void PrintStates(const States& states) {
  for (const uint16_t bits : states) std::printf("%.9g ", kernels::Bf16ToFloat(bits));
  std::printf("\n");
}

class HeadProgram {
 public:
  absl::Status Load(const std::string& head, const std::string& target) {
    ModelRunnerOptions options;
    options.dtype = "f32";
    options.threads = 1;
    options.kv_bytes = 16 << 20;
    options.dir = target;
    options.states_for = head;
    COPPICE_ASSIGN_OR_RETURN(target_, ModelRunner::Load(options, single_.get()));
    options.dir = head;
    options.states_for = "";
    options.target = target;
    COPPICE_ASSIGN_OR_RETURN(head_, ModelRunner::Load(options, single_.get()));
    return absl::OkStatus();
  }

  absl::Status Print(const std::vector<TokenId>& tokens, int drafted) {
    const int columns = target_->state_columns(),
              truths = static_cast<int>(tokens.size()) - drafted;
    const std::vector<TokenId> known(tokens.begin(), tokens.begin() + truths);
    COPPICE_ASSIGN_OR_RETURN(const States all, TargetStates(known));
    int cached = 0;
    sequence_ = head_->blocks()->Open({}, &cached);
    for (int t = 1; t < truths; ++t) {
      const States state(all.begin() + (t - 1) * columns, all.begin() + t * columns);
      COPPICE_ASSIGN_OR_RETURN(const auto slots,
                               head_->blocks()->AppendPrefix(sequence_, {tokens[t]}));
      StepBuilder step = head_->NewStep();
      step.AddPrefixRows(sequence_, {tokens[t]}, slots, [](int) { return RowNeed(); });
      step.SetState(0, state);
      PrintStates(state);
      COPPICE_RETURN_IF_ERROR(PrintLogits(std::move(step)));
      last_slot_ = slots[0];
    }
    return PrintDrafted({tokens.begin() + truths, tokens.end()});
  }

 private:
  absl::StatusOr<States> TargetStates(const std::vector<TokenId>& tokens) {
    int cached = 0;
    const SequenceHandle sequence = target_->blocks()->Open({}, &cached);
    COPPICE_ASSIGN_OR_RETURN(const auto slots, target_->blocks()->AppendPrefix(sequence, tokens));
    StepBuilder step = target_->NewStep();
    step.AddPrefixRows(sequence, tokens, slots);
    COPPICE_RETURN_IF_ERROR(target_->Submit(std::move(step)));
    COPPICE_RETURN_IF_ERROR(target_->Wait().status());
    States states(tokens.size() * target_->state_columns());
    COPPICE_RETURN_IF_ERROR(target_->ReadStates(slots, states.data()));
    return states;
  }

  // The first of them begins with the state of the last row before them, as it is the first of its
  // chain.
  absl::Status PrintDrafted(const std::vector<TokenId>& tokens) {
    KvNode before = kPrefixEnd;
    for (const TokenId token : tokens) {
      States state(head_->state_columns());
      COPPICE_RETURN_IF_ERROR(head_->ReadStates({last_slot_}, state.data()));
      COPPICE_ASSIGN_OR_RETURN(const KvNode node,
                               head_->blocks()->AddNode(sequence_, before, token));
      StepBuilder step = head_->NewStep();
      step.AddNodeRow(sequence_, node, token, RowNeed());
      if (before == kPrefixEnd) step.SetState(0, state);
      last_slot_ = head_->blocks()->slot(sequence_, node);
      PrintStates(state);
      COPPICE_RETURN_IF_ERROR(PrintLogits(std::move(step)));
      before = node;
    }
    return absl::OkStatus();
  }

  absl::Status PrintLogits(StepBuilder step) {
    COPPICE_RETURN_IF_ERROR(head_->Submit(std::move(step)));
    COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, head_->Wait());
    for (const float logit : rows->Whole(0)) std::printf("%.9g ", logit);
    std::printf("\n");
    return absl::OkStatus();
  }

  const std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  std::unique_ptr<ModelRunner> target_, head_;
  SequenceHandle sequence_ = -1;
  int32_t last_slot_ = 0;
};

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) {
    std::fprintf(stderr, "usage: model_head_logits HEAD TARGET DRAFTED ID ID...\n");
    return 2;
  }
  std::vector<TokenId> tokens;
  for (size_t i = 3; i < arguments.size(); ++i) tokens.push_back(std::atoi(arguments[i].c_str()));
  HeadProgram program;
  absl::Status status = program.Load(arguments[0], arguments[1]);
  if (status.ok()) status = program.Print(tokens, std::atoi(arguments[2].c_str()));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace coppice::model

int main(int argc, char** argv) { return coppice::model::Main({argv + 1, argv + argc}); }
