// The leader's loop with a draft node, each on its own threads. The answers must be those without
// drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "decoding/method.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

class DraftedEngineTest : public EngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static decoding::DecodingParams DraftedParams(uint64_t seed, const std::string& method) {
    decoding::DecodingParams params = Params();
    params.method = decoding::FindMethod(method);
    params.plain = false;
    params.seed = seed;
    params.beam_width = params.num_hypotheses = 2 + static_cast<int>(seed % 3);
    params.max_tokens = 20;
    params.draft_width = 2 * params.beam_width;
    params.draft_depth = 2;
    return params;
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, DraftedEngineTest,
                         ::testing::Values("tcp://127.0.0.1:*", "direct://127.0.0.1:*"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "Zmq" : "Direct");
                         });

TEST_P(DraftedEngineTest, AnswersAsWithoutDrafts) {
  test::TempDir dir;
  const auto runner =
      test::LoadTinyRunner(Tiny(), dir.path(), single_.get(), DraftNodeThread::kThreads);
  DraftNodeThread node(Tiny(), GetParam());
  EngineOptions off = Options(runner.get());
  off.suffixes.on = false;
  uint64_t id = 0;
  uint64_t drafted = 0;
  for (const int sequences : {1, 1, 4}) {
    for (const char* method : {"gumbel_coupling", "joint_gumbel_coupling"}) {
      SCOPED_TRACE(method);
      const uint64_t first = id + 1;
      for (int i = 0; i < sequences; ++i) {
        ++id;
        coordinator_.Start(MakeStart(id, DraftedParams(id, method)));
      }
      RunOn(runner.get(), off, clock_);
      const std::map<uint64_t, proto::SequenceUpdate> plain = coordinator_.finished();
      coordinator_.Send(node.Nodes());
      for (uint64_t again = first; again <= id; ++again) {
        coordinator_.Start(MakeStart(again, DraftedParams(again, method)));
      }
      RunOn(runner.get());
      ASSERT_THAT(coordinator_.errors(), IsEmpty());
      for (uint64_t again = first; again <= id; ++again) {
        const proto::SequenceUpdate& one = plain.at(again);
        const proto::SequenceUpdate& other = coordinator_.finished().at(again);
        EXPECT_EQ(one.stats().drafted_nodes(), 0u);
        drafted += other.stats().drafted_nodes();
        ExpectSameAnswer(one, other);
      }
    }
  }
  EXPECT_GT(drafted, 0u);
}

}  // namespace
}  // namespace coppice::worker
