#include "coordinator/http/parse_pool.h"

#include <algorithm>
#include <utility>
// <utility> first: Asio 1.74's awaitable uses std::exchange without including it.
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace coppice::coordinator {
namespace {

// Few, since workers may run on the same host. Not one, so that small jobs do not wait for large
// ones.
size_t Threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 2u, 4u); }

// A job of this many bytes may take some tenths of a second.
constexpr size_t kLargeJob = 256 << 10;

}  // namespace

struct ParsePool::Impl {
  struct Job {
    uint64_t id = 0;
    std::function<void()> work, then;
  };
  using Queue = FairQueue<std::unique_ptr<Job>>;
  explicit Impl(boost::asio::io_context* loop) : io(loop) {
    for (size_t i = 0; i < Threads(); ++i) threads.emplace_back([this] { Run(); });
  }
  void Run();
  Queue* Next();  // nullptr: no job may begin
  void PostThen(std::unique_ptr<Job> job) {
    boost::asio::post(*io, [job = std::move(job)] { job->then(); });
  }

  boost::asio::io_context* const io;
  std::mutex mutex;
  std::condition_variable changed;
  Queue small, large;
  uint64_t next_id = 1;
  // By the id of a job that waits: its queue and its id there.
  std::unordered_map<uint64_t, std::pair<Queue*, uint64_t>> waiting;
  size_t large_running = 0;
  bool ends = false;
  std::vector<std::thread> threads;
};

ParsePool::Impl::Queue* ParsePool::Impl::Next() {
  const bool large_may = !large.empty() && large_running + 1 < threads.size();
  if (large_may && (small.empty() || large_running == 0)) return &large;
  return small.empty() ? nullptr : &small;
}

void ParsePool::Impl::Run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    Queue* queue = nullptr;
    changed.wait(lock, [&] { return ends || (queue = Next()) != nullptr; });
    if (ends) return;
    const Queue::Entry& next = *queue->Heads().front();
    const uint64_t entry = next.id;
    queue->Serve(entry, next.cost);
    std::unique_ptr<Job> job = queue->Remove(entry);
    waiting.erase(job->id);
    if (queue == &large) ++large_running;
    lock.unlock();
    job->work();
    PostThen(std::move(job));
    lock.lock();
    if (queue == &large) --large_running;
    changed.notify_one();
  }
}

ParsePool::ParsePool(boost::asio::io_context* io) : impl_(std::make_unique<Impl>(io)) {}

ParsePool::~ParsePool() {
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    impl_->ends = true;
  }
  impl_->changed.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

uint64_t ParsePool::Post(const Client& client, size_t bytes, std::function<void()> work,
                         std::function<void()> then) {
  ++unfinished_;
  auto finish = [this, then = std::move(then)] {
    --unfinished_;
    then();
  };
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  Impl::Queue& queue = bytes >= kLargeJob ? impl_->large : impl_->small;
  const uint64_t id = impl_->next_id++;
  auto job = std::make_unique<Impl::Job>(Impl::Job{id, std::move(work), std::move(finish)});
  const uint64_t entry = queue.Push(client, static_cast<double>(bytes), std::move(job));
  impl_->waiting[id] = {&queue, entry};
  impl_->changed.notify_one();
  return id;
}

void ParsePool::Skip(uint64_t job) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  const auto found = impl_->waiting.find(job);
  if (found == impl_->waiting.end()) return;
  const auto [queue, entry] = found->second;
  impl_->waiting.erase(found);
  impl_->PostThen(queue->Remove(entry));
}

}  // namespace coppice::coordinator
