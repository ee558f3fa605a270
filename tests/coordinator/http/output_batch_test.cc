#include "coordinator/http/output_batch.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <string>
#include <utility>

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;

class Named : public OutputBatch::Member {
 public:
  Named(std::string name, std::string* log) : name_(std::move(name)), log_(log) {}
  void WriteNow(SteadyTime) override { *log_ += name_; }

 private:
  const std::string name_;
  std::string* const log_;
};

TEST(OutputBatchTest, WritesAfterTheHandlersThatAreReady) {
  asio::io_context io;
  const auto batch = std::make_shared<OutputBatch>();
  std::string log;
  const auto a = std::make_shared<Named>("a", &log), b = std::make_shared<Named>("b", &log);
  asio::post(io, [&] {
    batch->Add(io.get_executor(), a);
    log += "1";
  });
  asio::post(io, [&] {
    batch->Add(io.get_executor(), b);
    log += "2";
  });
  io.run();
  EXPECT_EQ(log, "12ab");
}

TEST(OutputBatchTest, WritesAgainWhatIsAddedLater) {
  asio::io_context io;
  const auto batch = std::make_shared<OutputBatch>();
  std::string log;
  const auto a = std::make_shared<Named>("a", &log);
  for (int i = 0; i < 2; ++i) {
    batch->Add(io.get_executor(), a);
    io.run();
    io.restart();
  }
  EXPECT_EQ(log, "aa");
}

}  // namespace
}  // namespace coppice::coordinator
