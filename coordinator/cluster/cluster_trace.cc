#include "coordinator/cluster/cluster_trace.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/json_text.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/request_target.h"
#include "proto/convert.h"

namespace coppice::coordinator {
namespace {

constexpr double kLate_s = 2;
constexpr int kServer = 1;  // its process in the document; replicas follow

}  // namespace

void ClusterTrace::Begin(const std::string& target, const std::shared_ptr<HttpExchange>& exchange) {
  const std::string given = TargetQueryValue(target, "seconds").value_or("1");
  double seconds = 0;
  if (!absl::SimpleAtod(given, &seconds) || !(seconds > 0) || seconds > kMost_s) {
    return exchange->Reply(ErrorReply(
        {400, "invalid_value", absl::StrCat("must be above 0 and at most ", kMost_s), "seconds"}));
  }
  if (under_way_ && !exchange_.expired()) {
    return exchange->Reply(
        ErrorReply({503, "trace_under_way", "another trace is being recorded", "",
                    static_cast<int>(std::max(1.0, late_s_ - clock_->NowSeconds()))}));
  }
  exchange_ = exchange;
  under_way_ = true;
  begin_s_ = clock_->NowSeconds();
  late_s_ = begin_s_ + seconds + kLate_s;
  dropped_ = 0;
  awaited_.clear();
  events_ = ChromeTrace();
  events_.NameProcess(kServer, "\"coordinator\"");
  proto::CoordinatorMessage message;
  message.mutable_trace_steps()->set_id(++id_);
  message.mutable_trace_steps()->set_seconds(seconds);
  for (const Node* node : registry_->Replicas()) {
    if (node->state != NodeState::kReady) continue;
    const int process = kServer + 1 + static_cast<int>(awaited_.size());
    awaited_[node->id] = process;
    events_.NameProcess(process, QuotedText(node->id));
    events_.NameTrack(process, 0, "\"engine\"");
    send_(node->peer, message);
  }
  // Without replicas the trace has the requests alone, after its time like any other.
}

void ClusterTrace::Take(const std::string& peer, const proto::StepTrace& trace) {
  const Node* node = registry_->FindPeer(peer);
  if (!under_way_ || node == nullptr || trace.id() != id_) return;
  if (const absl::Status fields = proto::CheckStepTrace(trace); !fields.ok())
    return spdlog::warn("{}: trace dropped: {}", node->id, std::string(fields.message()));
  AddReplica(node->id, trace);
}

// A replica's times count from the arrival of the message, which is taken for when it was sent.
void ClusterTrace::AddReplica(const std::string& id, const proto::StepTrace& trace) {
  const auto awaited = awaited_.find(id);
  if (awaited == awaited_.end()) return;
  const int process = awaited->second;
  std::set<int> tracks;
  for (const proto::TraceSpan& span : trace.spans()) {
    ChromeTrace::Args args;
    if (span.sequence_id() != 0)
      args.emplace_back("sequence", absl::StrCat("\"", span.sequence_id(), "\""));
    for (const auto& [name, value] : span.args()) args.emplace_back(name, absl::StrCat(value));
    if (span.track() < 0) {
      events_.Overlapping(process, span.sequence_id(), span.name(), span.begin_s(), span.seconds(),
                          args);
      continue;
    }
    if (span.track() > 0 && tracks.insert(span.track()).second)
      events_.NameTrack(process, span.track(), absl::StrCat("\"verdicts ", span.track(), "\""));
    events_.Span(process, span.track(), span.name(), span.begin_s(), span.seconds(), args);
  }
  dropped_ += trace.dropped();
  awaited_.erase(awaited);
}

// Those that ended within the trace, as far as their timelines are kept.
void ClusterTrace::AddRequests() {
  uint64_t id = 0;
  for (const Timeline& timeline : dispatcher_->timelines()) {
    const double from_s = timeline.arrival_s - begin_s_;
    if (from_s + timeline.total_s < 0) continue;
    const ChromeTrace::Args args = {{"id", QuotedText(timeline.request_id)}};
    events_.Overlapping(kServer, ++id, "request", from_s, timeline.total_s, args);
    for (const Timeline::Part& part : timeline.parts)
      events_.Overlapping(kServer, id, "queue", from_s, part.started_s, args);
  }
}

void ClusterTrace::Tick() {
  if (!under_way_) return;
  if (exchange_.expired()) return void(under_way_ = false);  // its client has gone
  const double now = clock_->NowSeconds();
  if (now < late_s_ && (!awaited_.empty() || now < late_s_ - kLate_s)) return;
  Answer();
}

void ClusterTrace::Answer() {
  under_way_ = false;
  const std::shared_ptr<HttpExchange> exchange = exchange_.lock();
  if (exchange == nullptr) return;
  AddRequests();
  ListText missing;
  for (const auto& [id, process] : awaited_) missing.Add(QuotedText(id));
  ObjectText other;
  other.AddText("dropped_spans", absl::StrCat(dropped_))
      .AddText("missing_replicas", missing.text());
  HttpReply reply;
  reply.body = ChromeTraceDocument(events_.Take(), other.text());
  exchange->Reply(std::move(reply));
}

}  // namespace coppice::coordinator
