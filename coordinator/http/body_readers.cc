#include "coordinator/http/body_readers.h"

#include <algorithm>
#include <utility>
// <utility> first: Asio 1.74's awaitable uses std::exchange without including it.
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <thread>

namespace coppice::coordinator {
namespace {

// Few, since workers may run on the same host. Not one, so that a body does not wait for each larger
// one.
size_t Threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 2u, 4u); }

struct Job {
  std::function<void()> read, then;
};

}  // namespace

struct BodyReaders::Impl {
  explicit Impl(boost::asio::io_context* loop) : io(loop), pool(Threads()) {}
  boost::asio::io_context* const io;
  boost::asio::thread_pool pool;
};

BodyReaders::BodyReaders(boost::asio::io_context* io) : impl_(std::make_unique<Impl>(io)) {}

BodyReaders::~BodyReaders() {
  impl_->pool.stop();
  impl_->pool.join();
}

void BodyReaders::Post(std::function<void()> read, std::function<void()> then) {
  auto job = std::make_unique<Job>(Job{std::move(read), std::move(then)});
  boost::asio::post(impl_->pool, [io = impl_->io, job = std::move(job)]() mutable {
    job->read();
    boost::asio::post(*io, [job = std::move(job)] { job->then(); });
  });
}

}  // namespace coppice::coordinator
