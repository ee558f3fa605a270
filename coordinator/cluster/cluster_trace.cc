#include "coordinator/cluster/cluster_trace.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/chrome_trace.h"
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
  ChromeTrace names;
  names.NameProcess(kServer, "\"coordinator\"");
  proto::CoordinatorMessage message;
  message.mutable_trace_steps()->set_id(++id_);
  message.mutable_trace_steps()->set_seconds(seconds);
  for (const Node* node : registry_->Replicas()) {
    if (node->state != NodeState::kReady) continue;
    const int process = kServer + 1 + static_cast<int>(awaited_.size());
    awaited_[node->id] = process;
    names.NameProcess(process, QuotedText(node->id));
    names.NameTrack(process, 0, "\"engine\"");
    send_(node->peer, message);
  }
  events_ = names.Take();
  // Without replicas the trace has the requests alone, after its time like any other.
}

void ClusterTrace::Take(const std::string& peer, proto::StepTrace trace) {
  const Node* node = registry_->FindPeer(peer);
  if (!under_way_ || node == nullptr || trace.id() != id_) return;
  const auto awaited = awaited_.find(node->id);
  if (awaited == awaited_.end()) return;
  const auto replica = std::make_shared<Replica>();
  replica->process = awaited->second;
  replica->trace = std::move(trace);
  jobs_->Post(
      Client{}, replica->trace.ByteSizeLong(), [replica] { MakeText(replica.get()); },
      [this, replica, id = node->id] {
        if (!under_way_ || replica->trace.id() != id_) return;
        if (awaited_.erase(id) == 0) return;  // it has sent two
        if (!replica->fields.ok()) {
          return spdlog::warn("{}: trace dropped: {}", id, std::string(replica->fields.message()));
        }
        events_ += replica->events;
        dropped_ += replica->trace.dropped();
      });
}

// A replica's times count from the arrival of the message, which is taken for when it was sent.
void ClusterTrace::MakeText(Replica* replica) {
  replica->fields = proto::CheckStepTrace(replica->trace);
  if (!replica->fields.ok()) return;
  const int process = replica->process;
  ChromeTrace events;
  std::set<int> tracks;
  for (const proto::TraceSpan& span : replica->trace.spans()) {
    ChromeTrace::Args args;
    if (span.sequence_id() != 0)
      args.emplace_back("sequence", absl::StrCat("\"", span.sequence_id(), "\""));
    for (const auto& [name, value] : span.args()) args.emplace_back(name, absl::StrCat(value));
    if (span.track() < 0) {
      events.Overlapping(process, span.sequence_id(), span.name(), span.begin_s(), span.seconds(),
                         args);
      continue;
    }
    if (span.track() > 0 && tracks.insert(span.track()).second)
      events.NameTrack(process, span.track(), absl::StrCat("\"verdicts ", span.track(), "\""));
    events.Span(process, span.track(), span.name(), span.begin_s(), span.seconds(), args);
  }
  replica->events = events.Take();
}

// Those that ended within the trace, as far as their timelines are kept.
void ClusterTrace::AddRequests() {
  uint64_t id = 0;
  ChromeTrace requests;
  for (const Timeline& timeline : dispatcher_->timelines()) {
    const double from_s = timeline.arrival_s - begin_s_;
    if (from_s + timeline.total_s < 0) continue;
    const ChromeTrace::Args args = {{"id", QuotedText(timeline.request_id)}};
    requests.Overlapping(kServer, ++id, "request", from_s, timeline.total_s, args);
    for (const Timeline::Part& part : timeline.parts)
      requests.Overlapping(kServer, id, "queue", from_s, part.started_s, args);
  }
  events_ += requests.Take();
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
  reply.body = ChromeTraceDocument(std::exchange(events_, ""), other.text());
  exchange->Reply(std::move(reply));
}

}  // namespace coppice::coordinator
