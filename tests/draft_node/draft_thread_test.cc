// The draft model of a leader's process. tests/worker/own_draft_test.cc has the leader.
#include "draft_node/draft_thread.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "comm/channel.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/failing_sender.h"
#include "tests/testing/stopwatch.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_runner.h"

namespace coppice::draft_node {
namespace {

class DraftThreadTest : public ::testing::Test {
 protected:
  DraftThread::LoadRunner Loader(model::PlanSender* sender = nullptr) {
    return [this, sender](comm::Communicator* single) {
      loaded_on_ = std::this_thread::get_id();
      test::TinyLlamaOptions tiny;
      tiny.vocab = 24;
      auto runner = test::LoadTinyRunner(tiny, dir_.path(), single);
      runner->SendPlansTo(sender);
      return runner;
    };
  }
  static proto::DraftCommand OpenCommand(int prompt) {
    proto::DraftCommand command;
    command.mutable_open()->set_session_id(1);
    for (int i = 0; i < prompt; ++i) command.mutable_open()->add_prompt(3 + i % 20);
    decoding::DecodingParams params;
    params.method = decoding::FindMethod("gumbel_coupling");
    *command.mutable_open()->mutable_decoding() = proto::DecodingToMessage(params);
    return command;
  }
  static bool Await(comm::ClientChannel* leader, proto::DraftReply* reply) {
    return test::Eventually([&] {
      if (leader->Receive(reply)) return true;
      comm::Poll({leader->socket()}, 10);
      return false;
    });
  }

  test::TempDir dir_;
  std::thread::id loaded_on_;
};

TEST_F(DraftThreadTest, ServesOnTheThreadThatHasLoaded) {
  auto draft = DraftThread::Load(Loader());
  ASSERT_TRUE(draft.ok()) << draft.status();
  EXPECT_NE(loaded_on_, std::this_thread::get_id());
  const auto leader = (*draft)->Serve({});
  ASSERT_TRUE(leader->Send(OpenCommand(30)).ok());
  proto::DraftReply reply;
  ASSERT_TRUE(Await(leader.get(), &reply));
  EXPECT_TRUE(reply.prefilled());
  draft->reset();
  EXPECT_EQ(leader->breaks(), 1u);
}

TEST_F(DraftThreadTest, EndsWithoutHavingServedAndAfterItsLeader) {
  ASSERT_TRUE(DraftThread::Load(Loader()).ok());
  auto draft = DraftThread::Load(Loader());
  ASSERT_TRUE(draft.ok());
  auto leader = (*draft)->Serve({});
  ASSERT_TRUE(leader->Send(OpenCommand(30)).ok());
  leader.reset();
}

TEST_F(DraftThreadTest, TellsWhyItCannotLoad) {
  const auto draft =
      DraftThread::Load([](comm::Communicator*) { return absl::NotFoundError("no weights"); });
  EXPECT_EQ(draft.status(), absl::NotFoundError("no weights"));
}

TEST_F(DraftThreadTest, AFailedPassBreaksTheChannelAndIsLoggedOnce) {
  test::FailingSender sender(1);
  auto draft = DraftThread::Load(Loader(&sender));
  ASSERT_TRUE(draft.ok());
  const test::CapturedLog log;
  DraftServiceOptions options;
  options.prefill_chunk = 16;
  const auto leader = (*draft)->Serve(options);
  ASSERT_TRUE(leader->Send(OpenCommand(60)).ok());
  ASSERT_TRUE(test::Eventually([&] { return leader->breaks() == 1; }));
  proto::DraftReply reply;
  EXPECT_FALSE(leader->Receive(&reply));
  EXPECT_FALSE(leader->Send(OpenCommand(60)).ok());
  draft->reset();
  const std::string text = log.text();
  const size_t line = text.find("the draft of this process has failed");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_NE(text.find("the device is lost", line), std::string::npos) << text;
  EXPECT_EQ(text.find("has failed", line + 40), std::string::npos) << text;
}

}  // namespace
}  // namespace coppice::draft_node
