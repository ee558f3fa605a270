// docs/flags.md is exactly the page that the tables of flags give.
#include "lab/reference/flags_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "coordinator/options.h"
#include "draft_node/draft_flags.h"
#include "loadgen/options.h"
#include "worker/worker_flags.h"

namespace coppice::reference {
namespace {

TEST(FlagsPageTest, TheTreeHasTheCurrentPage) {
  std::ifstream file("docs/flags.md");  // tests run in the root of the source tree
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, FlagsPage()) << "docs/flags.md is stale: coppice-reference flags > docs/flags.md";
}

class FlagTables : public ::testing::Test {
 protected:
  void ForEach(const std::function<void(const Flags&)>& check) {
    check(Flags(coordinator::CoordinatorFlagTable(&coordinator_)));
    check(Flags(worker::WorkerFlagTable(&worker_)));
    check(Flags(draft_node::DraftFlagTable(&draft_)));
    check(Flags(loadgen::LoadgenFlagTable(&loadgen_)));
  }
  coordinator::LaunchOptions coordinator_;
  worker::WorkerFlags worker_;
  draft_node::DraftFlags draft_;
  loadgen::LoadgenFlags loadgen_;
};

// Only what is required may be missing.
TEST_F(FlagTables, EveryDefaultIsAllowed) {
  ForEach([](const Flags& flags) {
    const std::string faults(flags.CheckRows().message());
    EXPECT_TRUE(faults.empty() || faults == "--model: not given")
        << flags.table().program << ": " << faults;
  });
}

TEST_F(FlagTables, EveryRowHasAText) {
  ForEach([](const Flags& flags) {
    for (const FlagGroup& group : flags.table().groups) {
      EXPECT_FALSE(group.title.empty());
      for (const FlagRow& row : group.rows) EXPECT_GE(row.text.size(), 5u) << row.name;
    }
  });
}

// A flag of the coordinator and the nodes that has one meaning has one default.
TEST_F(FlagTables, SharedFlagsHaveTheSameDefault) {
  EXPECT_EQ(coordinator_.coordinator.registry.heartbeat_interval_s,
            worker_.node.heartbeat_interval_s);
  EXPECT_EQ(worker_.node.runner.max_rows, worker_.engine.scheduler.max_rows);
  EXPECT_EQ(worker_.node.runner.max_rows, worker_.engine.drafts.max_rows);
  EXPECT_EQ(worker_.node.prefill_chunk, worker_.engine.scheduler.prefill_chunk);
  EXPECT_EQ(draft_.node.prefill_chunk, draft_.service.prefill_chunk);
}

}  // namespace
}  // namespace coppice::reference
