// The states that a leader reads from the target's KV, against those of the same tokens read alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/local_channel.h"
#include "tests/worker/head_fixture.h"
#include "tests/worker/states_node.h"

namespace coppice::worker {
namespace {

class PoolStatesTest : public HeadTest {
 protected:
  // The state of the last of these tokens: the backend is batch-invariant, so it has the same bits.
  std::vector<uint16_t> Expected(absl::Span<const TokenId> tokens) {
    const std::vector<TokenId> text(tokens.begin(), tokens.end());
    if (known_.count(text) == 0) ReadAlone(text);
    return known_.at(text);
  }
  // Answers what the requests of plain answers say, so that some drafts are accepted. Runs all
  // sequences with a draft of the process that checks every state.
  std::map<uint64_t, std::string> DecodeChecked(model::ModelRunner* runner,
                                                const std::vector<proto::StartSequence>& starts) {
    comm::LocalChannels channels = comm::MakeLocalChannels();
    StatesNode node(std::move(channels.server), runner->state_columns(), kVocab,
                    [this](absl::Span<const TokenId> tokens) { return Expected(tokens); });
    act_ = [&](int /*turn*/) {
      while (const auto request = node.NextRequest(/*patience_ms=*/0)) {
        proto::DraftReply reply = node.Answer(*request);
        *reply.mutable_forest() = proto::ForestToMessage(
            ForestFor(*request, node.tokens(request->session_id()), runner->state_columns()));
        node.node()->Send(reply);
      }
    };
    const auto answers = DecodeWith(runner, starts, std::move(channels.client));
    states_taken_ = node.states_taken();
    return answers;
  }

  std::vector<std::vector<TokenId>> texts_;  // prompts with answers, which forests follow
  int states_taken_ = 0;

 private:
  void ReadAlone(const std::vector<TokenId>& text) {
    if (alone_ == nullptr) alone_ = LoadTarget(40, /*keeps=*/true);
    model::BlockManager* blocks = alone_->blocks();
    model::StepBuilder step = alone_->NewStep();
    const model::SequenceHandle sequence = blocks->Open({}, nullptr);
    const std::vector<int32_t> slots = blocks->AppendPrefix(sequence, text).value();
    step.AddPrefixRows(sequence, text, slots);
    ASSERT_TRUE(alone_->Submit(std::move(step)).ok());
    ASSERT_TRUE(alone_->Wait().ok());
    const size_t columns = alone_->state_columns();
    std::vector<uint16_t> states(text.size() * columns);
    ASSERT_TRUE(alone_->ReadStates(slots, states.data()).ok());
    for (size_t i = 0; i < text.size(); ++i) {
      known_[{text.begin(), text.begin() + i + 1}] = {states.begin() + i * columns,
                                                      states.begin() + (i + 1) * columns};
    }
    blocks->Close(sequence);
    blocks->EndRound();
  }
  // Two levels below each root that is the beginning of a text.
  decoding::DraftForest ForestFor(const proto::DraftRequest& message,
                                  const std::vector<TokenId>& stable, int columns) {
    const auto request = proto::DraftRequestFromMessage(message, kVocab, columns);
    EXPECT_TRUE(request.ok()) << request.status();
    const int roots = static_cast<int>(request->roots.ends.size());
    decoding::DraftForest forest = decoding::DraftForest::Empty(roots);
    std::vector<TreePlace> places;
    std::vector<std::vector<TokenId>> paths;
    for (int r = 0; r < roots; ++r) {
      places.push_back(RootId{r});
      paths.push_back(stable);
      request->roots.tree.AppendPath(request->roots.ends[r], &paths.back());
    }
    forest.layer_begin = {0};
    for (int level = 0; level < request->depth; ++level) {
      for (size_t i = 0; i < paths.size(); ++i) {
        const auto text = std::find_if(texts_.begin(), texts_.end(), [&](const auto& one) {
          return one.size() > paths[i].size() &&
                 std::equal(paths[i].begin(), paths[i].end(), one.begin());
        });
        if (text == texts_.end()) {
          paths[i].assign(1, -1);  // begins none
          continue;
        }
        const TokenId token = (*text)[paths[i].size()];
        places[i] = forest.Add(places[i], token);
        paths[i].push_back(token);
      }
      if (forest.size() == forest.layer_begin.back()) break;
      forest.layer_begin.push_back(forest.size());
    }
    return forest;
  }

  std::unique_ptr<model::ModelRunner> alone_;
  std::map<std::vector<TokenId>, std::vector<uint16_t>> known_;
};

TEST_F(PoolStatesTest, AreThoseOfTheTokensWhateverBecomesOfTheirKv) {
  const auto plain = Requests(40, /*drafts=*/false), drafted = Requests(40, /*drafts=*/true);
  const auto large = LoadTarget(2000, /*keeps=*/true);
  const auto without = DecodeWith(large.get(), plain, nullptr);
  for (const proto::StartSequence& start : plain) {
    for (const proto::Hypothesis& hypothesis :
         coordinator_.finished().at(start.sequence_id()).hypotheses()) {
      texts_.emplace_back(start.prompt().begin(), start.prompt().end())
          .insert(texts_.back().end(), hypothesis.tokens().begin(), hypothesis.tokens().end());
    }
  }
  const auto small = LoadTarget(LargestBound(large.get(), drafted), /*keeps=*/true);
  for (model::ModelRunner* runner : {large.get(), small.get()}) {
    preemptions_ = accepted_ = 0;
    ExpectSame(DecodeChecked(runner, drafted), without);
    EXPECT_GT(states_taken_, 2000);
    EXPECT_GT(accepted_, 200u);
    EXPECT_EQ(counters_.rounds_without_draft().count("no_states"), 0u);
    EXPECT_EQ(preemptions_ > 0, runner == small.get());
  }
}

}  // namespace
}  // namespace coppice::worker
