#include "loadgen/client.h"

#include <sys/resource.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "loadgen/arrivals.h"
#include "loadgen/completion_stream.h"
#include "loadgen/endpoint_set.h"
#include "loadgen/http_exchange.h"
#include "loadgen/request_deadline.h"
#include "loadgen/sse_parser.h"

namespace coppice::loadgen {
namespace {

namespace asio = boost::asio;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr size_t kMaxErrorBody = 64 << 10;
constexpr double kForever = 1e9;  // s; a clock's range is enough for it

std::chrono::steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kForever)));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// Raises the limit of open files as far as the system allows.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void Rethrow(std::exception_ptr thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

class LoadRun {
 public:
  LoadRun(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress)
      : plan_(plan),
        progress_(progress),
        arrival_timer_(io_),
        progress_timer_(io_),
        stop_timer_(io_),
        endpoints_(io_, plan.policy) {}

  absl::StatusOr<LoadResult> Run();

 private:
  // A conversation that has arrived, and the number of its first request.
  struct Arrived {
    int64_t conversation, first_request;
  };

  double Now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool stopped() const { return plan_.duration_s > 0 && Now() >= plan_.duration_s; }
  bool open_loop() const { return !plan_.arrivals_s.empty(); }
  bool HasRoom() const { return plan_.max_concurrency == 0 || running_ < plan_.max_concurrency; }

  int64_t AddRecords(int64_t conversation, double intended_s);
  asio::awaitable<void> ReleaseArrivals();
  asio::awaitable<void> StopSending();
  asio::awaitable<void> ShowProgress();
  void StartReady();
  void DropReady();  // drops what waits for room when the duration is over
  void EndIfFinished();
  asio::awaitable<void> RunConversation(Arrived arrived);
  asio::awaitable<void> RunRequest(int64_t k, std::string body);
  // The answer of one exchange, over an idle connection if there is one.
  asio::awaitable<HttpAnswer> Send(int64_t k, std::string request, RequestDeadline& deadline,
                                   const char** step);
  std::pair<double, Cut> CutTime(int64_t k, double sent_s) const;
  void Conclude(int64_t k, const HttpAnswer& answer, Cut cut, const char* step);
  void Report() const;

  const LoadPlan& plan_;
  const std::function<void(const LoadProgress&)>& progress_;
  asio::io_context io_{1};
  asio::steady_timer arrival_timer_, progress_timer_, stop_timer_;
  EndpointSet endpoints_;
  Headers headers_;
  SteadyTime start_;
  std::deque<RequestRecord> records_;  // references stay valid while it grows
  std::deque<Arrived> ready_;          // open loop: arrived and not yet begun
  int64_t next_ = 0;                   // closed loop: the next conversation
  int64_t running_ = 0, done_ = 0, failed_ = 0, output_tokens_ = 0;
  bool all_arrived_ = false, finished_ = false;
};

absl::StatusOr<LoadResult> LoadRun::Run() {
  COPPICE_RETURN_IF_ERROR(endpoints_.Resolve(plan_.servers));
  RaiseFileLimit();
  headers_ = plan_.servers.headers;
  headers_.emplace_back("User-Agent", "coppice-loadgen");
  headers_.emplace_back("Accept", "text/event-stream");
  for (size_t c = 0; c < plan_.arrivals_s.size(); ++c) AddRecords(c, plan_.arrivals_s[c]);
  LoadResult result;
  const double cpu_before_s = CpuSeconds();
  start_ = std::chrono::steady_clock::now();
  all_arrived_ = !open_loop();
  if (open_loop()) asio::co_spawn(io_, ReleaseArrivals(), Rethrow);
  if (plan_.duration_s > 0) asio::co_spawn(io_, StopSending(), Rethrow);
  asio::co_spawn(io_, ShowProgress(), Rethrow);
  StartReady();
  EndIfFinished();
  io_.run();
  result.wall_s = Now();
  result.cpu_s = CpuSeconds() - cpu_before_s;
  result.bytes = endpoints_.bytes();
  endpoints_.CloseIdle();
  result.records.assign(std::make_move_iterator(records_.begin()),
                        std::make_move_iterator(records_.end()));
  return result;
}

// Returns the number of the conversation's first request.
int64_t LoadRun::AddRecords(int64_t conversation, double intended_s) {
  const int64_t first = static_cast<int64_t>(records_.size());
  records_.resize(records_.size() + plan_.source->Turns(conversation));
  records_[first].intended_s = intended_s;
  return first;
}

asio::awaitable<void> LoadRun::ReleaseArrivals() {
  int64_t first = 0;
  for (size_t c = 0; c < plan_.arrivals_s.size(); ++c) {
    const SteadyTime due = start_ + Seconds(plan_.arrivals_s[c]);
    if (due > std::chrono::steady_clock::now()) {
      arrival_timer_.expires_at(due);
      co_await arrival_timer_.async_wait(asio::use_awaitable);
    }
    ready_.push_back({static_cast<int64_t>(c), first});
    first += plan_.source->Turns(c);
    StartReady();
    if (stopped()) DropReady();  // there is no room for it, and none will come in time
  }
  all_arrived_ = true;
  EndIfFinished();
}

asio::awaitable<void> LoadRun::StopSending() {
  ErrorCode cancelled;
  stop_timer_.expires_at(start_ + Seconds(plan_.duration_s));
  co_await stop_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  if (cancelled) co_return;
  DropReady();
  EndIfFinished();
}

void LoadRun::StartReady() {
  while (HasRoom()) {
    Arrived arrived{};
    if (open_loop()) {
      if (ready_.empty()) return;
      arrived = ready_.front();
      ready_.pop_front();
    } else {
      if (next_ == plan_.conversations || stopped()) return;
      arrived = {next_, AddRecords(next_, Now())};
      ++next_;
    }
    ++running_;
    asio::co_spawn(io_, RunConversation(arrived), [this](std::exception_ptr thrown) {
      Rethrow(thrown);
      --running_;
      StartReady();
      EndIfFinished();
    });
  }
}

void LoadRun::DropReady() {
  for (const Arrived& late : ready_) {
    for (int turn = 0; turn < plan_.source->Turns(late.conversation); ++turn) {
      RequestRecord& record = records_[late.first_request + turn];
      record.unfinished = true;
      record.error = "not sent: the benchmark duration was over";
      record.sent_s = record.end_s = std::max(record.intended_s, Now());
    }
  }
  ready_.clear();
}

void LoadRun::EndIfFinished() {
  const bool more = open_loop() ? !all_arrived_ || !ready_.empty() : next_ != plan_.conversations;
  if (running_ > 0 || (more && !stopped()) || !all_arrived_) return;
  finished_ = true;
  progress_timer_.cancel();
  stop_timer_.cancel();
}

void LoadRun::Report() const {
  const bool known = open_loop() || plan_.conversations != LoadPlan::kEndless;
  const int64_t closed = std::max<int64_t>(plan_.conversations, records_.size());
  progress_({.total = !known        ? 0
                      : open_loop() ? static_cast<int64_t>(records_.size())
                                    : closed,
             .done = done_,
             .running = running_,
             .failed = failed_,
             .output_tokens = output_tokens_,
             .elapsed_s = Now()});
}

asio::awaitable<void> LoadRun::ShowProgress() {
  while (!finished_) {
    Report();
    progress_timer_.expires_after(std::chrono::seconds(1));
    ErrorCode cancelled;
    co_await progress_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
  Report();
}

asio::awaitable<void> LoadRun::RunConversation(Arrived arrived) {
  std::vector<std::string> answers;
  const int turns = plan_.source->Turns(arrived.conversation);
  for (int turn = 0; turn < turns; ++turn) {
    const int64_t k = arrived.first_request + turn;
    RequestRecord& record = records_[k];
    const double now = Now();
    if (turn > 0 || !open_loop()) record.intended_s = now;
    const RequestRecord* before = turn > 0 ? &records_[k - 1] : nullptr;
    if (before != nullptr && (!before->ok || stopped())) {
      record.sent_s = record.end_s = now;
      record.cancelled = before->cancelled;
      record.unfinished = before->unfinished || before->ok;
      record.error = "not sent: the turn before it did not end well, or the run was over";
    } else {
      PreparedRequest request = plan_.source->Prepare(arrived.conversation, k, answers);
      record.choices = request.choices;
      record.prompt_tokens = request.prompt_tokens;
      co_await RunRequest(k, std::move(request.body));
      if (turns > 1) answers.push_back(record.text);
      if (turns > 1 && !plan_.keep_texts) record.text.clear();
    }
    ++done_;
    failed_ += record.failed() ? 1 : 0;
    output_tokens_ += record.output_tokens;
  }
}

// When request k is cut off at the latest, and why then.
std::pair<double, Cut> LoadRun::CutTime(int64_t k, double sent_s) const {
  std::pair<double, Cut> cut = {sent_s + plan_.timeout_s, Cut::kTimeout};
  const double run_end_s = plan_.duration_s + plan_.grace_s;
  if (plan_.duration_s > 0 && run_end_s < cut.first) cut = {run_end_s, Cut::kRunEnd};
  const double cancel_s = sent_s + plan_.cancel_delay_s;
  if (plan_.cancel_percent > 0 && cancel_s < cut.first &&
      IsChosenForCancellation(plan_.seed, k, plan_.cancel_percent)) {
    cut = {cancel_s, Cut::kCancelled};
  }
  return cut;
}

asio::awaitable<void> LoadRun::RunRequest(int64_t k, std::string body) {
  RequestRecord& record = records_[k];
  record.endpoint = endpoints_.Choose();
  Headers headers = headers_;
  if (!plan_.request_id_prefix.empty())
    headers.emplace_back("X-Request-Id", absl::StrCat(plan_.request_id_prefix, k));
  const BaseUrl& url = endpoints_.url(record.endpoint);
  std::string request = RequestBytes(url, plan_.endpoint, headers, body);
  record.sent_s = Now();
  if (!open_loop()) record.intended_s = record.sent_s;
  const auto [cut_s, why] = CutTime(k, record.sent_s);
  RequestDeadline deadline(io_, start_ + Seconds(cut_s), why);
  const char* step = "connect";
  const HttpAnswer answer = co_await Send(k, std::move(request), deadline, &step);
  endpoints_.Done(record.endpoint);
  Conclude(k, answer, deadline.cut(), step);
}

asio::awaitable<HttpAnswer> LoadRun::Send(int64_t k, std::string request, RequestDeadline& deadline,
                                          const char** step) {
  RequestRecord& record = records_[k];
  const int endpoint = record.endpoint;
  CompletionStream completion(&record, plan_.keep_texts || plan_.source->has_later_turns());
  SseParser events;
  std::string error_body;
  const auto on_body = [&](int status, std::string_view piece) {
    if (status == 200) {
      const double now_s = Now();
      for (const std::string& data : events.Feed(piece)) completion.OnData(data, now_s);
      if (events.overflowed() && record.error.empty()) record.error = "event: too long";
    } else if (error_body.size() < kMaxErrorBody) {
      error_body += piece;
    }
  };
  HttpAnswer answer;
  while (true) {
    std::unique_ptr<Connection> connection = endpoints_.TakeIdle(endpoint);
    const bool reused = connection != nullptr;
    if (!reused) connection = endpoints_.MakeConnection(endpoint);
    deadline.Watch(connection.get());
    answer = {};
    if (!reused) answer.error = co_await connection->Open();
    if (!answer.error) {
      *step = "request";
      answer = co_await Exchange(*connection, request, on_body);
    }
    deadline.Watch(nullptr);
    if (answer.error && reused && answer.status == 0 && deadline.cut() == Cut::kNone)
      continue;  // the server had closed the idle connection
    if (!answer.error && answer.reusable && deadline.cut() == Cut::kNone)
      endpoints_.Keep(endpoint, std::move(connection));
    break;
  }
  if (answer.error || answer.status == 0) co_return answer;
  if (answer.status == 200) {
    completion.Finish();
  } else {
    record.error = ErrorText(error_body);
  }
  co_return answer;
}

void LoadRun::Conclude(int64_t k, const HttpAnswer& answer, Cut cut, const char* step) {
  RequestRecord& record = records_[k];
  record.end_s = Now();
  record.status = answer.status;
  record.ok = !answer.error && record.error.empty() && answer.status == 200;
  if (record.ok || !answer.error) return;
  record.timed_out = cut == Cut::kTimeout;
  record.cancelled = cut == Cut::kCancelled;
  record.unfinished = cut == Cut::kRunEnd;
  if (record.timed_out) {
    record.error = absl::StrCat("timed out after ", plan_.timeout_s, " s");
  } else if (record.cancelled) {
    record.error = absl::StrCat("cancelled after ", plan_.cancel_delay_s, " s");
  } else if (record.unfinished) {
    record.error = "still running when the run ended";
  } else if (record.error.empty()) {
    record.error = absl::StrCat(step, ": ", answer.error.message());
  }
}

}  // namespace

absl::StatusOr<LoadResult> RunLoad(const LoadPlan& plan,
                                   const std::function<void(const LoadProgress&)>& progress) {
  return LoadRun(plan, progress).Run();
}

}  // namespace coppice::loadgen
