// A replica without a model. It registers over the control channel and answers each StartSequence
// with the updates of a script.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/channel.h"
#include "proto/convert.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace coppice::coordinator {

// One process for each name, until a test changes process_id.
inline uint64_t ProcessOf(const std::string& name) { return std::hash<std::string>()(name) | 1; }

inline proto::Register WorkerRegistration(const std::string& id, int vocab = 258) {
  proto::Register registration;
  registration.set_role(proto::WORKER_LEADER);
  registration.set_node_id(id);
  registration.set_process_id(ProcessOf(id));
  registration.mutable_model()->set_vocab_size(vocab);
  registration.mutable_model()->set_max_positions(512);
  registration.mutable_model()->set_fingerprint(7);
  registration.mutable_model()->set_dtype("F32");
  registration.mutable_model()->set_kv_dtype("F32");
  registration.mutable_model()->add_eos_ids(ByteTokenizer::kEos);
  proto::RankInfo* rank = registration.add_ranks();
  rank->set_host("fake-" + id);
  rank->set_pid(1);
  registration.set_kv_blocks_total(1000);
  registration.set_kv_block_size(16);
  registration.set_backend("fake");
  return registration;
}

inline proto::Register DraftRegistration(const std::string& id, int vocab = 258) {
  proto::Register registration;
  registration.set_role(proto::DRAFT_NODE);
  registration.set_node_id(id);
  registration.set_process_id(ProcessOf(id));
  registration.set_draft_endpoint("tcp://127.0.0.1:1/" + id);
  registration.mutable_model()->set_vocab_size(vocab);
  return registration;
}

inline proto::Hypothesis MakeHypothesis(const std::vector<TokenId>& tokens, double joint,
                                        bool finished) {
  proto::Hypothesis hypothesis;
  hypothesis.mutable_tokens()->Add(tokens.begin(), tokens.end());
  hypothesis.set_joint_log_probability(joint);
  hypothesis.set_score(joint / tokens.size());
  hypothesis.set_finished(finished);
  hypothesis.set_stop_token(finished ? tokens.back() : -1);
  return hypothesis;
}

inline proto::SequenceStats MakeStats() {
  DecodingStats stats;
  stats.method = "gumbel_coupling";
  stats.rounds = stats.target_passes = 4;
  stats.plain_rounds = 1;
  stats.layers = 8;
  stats.drafted_nodes = 12;
  stats.accepted_nodes = 6;
  stats.accepted_by_layer = {4, 2};
  stats.accepting_layers = 4;
  stats.draft_width_sum = 12;
  stats.draft_depth_sum = 9;
  return proto::StatsToMessage(stats);
}

class FakeWorker {
 public:
  // Makes the updates of a sequence, one per step. An empty result ends it. An endless script never
  // finishes by itself.
  using Script = std::function<std::vector<proto::SequenceUpdate>(const proto::StartSequence&)>;

  FakeWorker(const std::string& endpoint, const std::string& id, Script script,
             double step_s = 0.002)
      : channel_(*comm::ClientChannel::Connect(endpoint)),
        id_(id),
        script_(std::move(script)),
        step_s_(step_s),
        thread_([this] { Run(); }) {}
  ~FakeWorker() { Stop(); }

  // Stops without sending Goodbye.
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int started() const { return started_; }
  int cancelled() const { return cancelled_; }
  bool told_to_stop() const { return told_to_stop_; }
  void set_traces(bool traces) { traces_ = traces; }  // whether it answers TraceSteps

 private:
  void Run() {
    proto::NodeMessage message;
    *message.mutable_register_() = WorkerRegistration(id_);
    (void)channel_->Send(message);
    auto next_beat = std::chrono::steady_clock::now();
    while (!stop_) {
      const comm::Pollable sockets[] = {channel_->socket()};
      comm::Poll(sockets, 1);
      proto::CoordinatorMessage received;
      while (channel_->Receive(&received)) OnMessage(received);
      Step();
      if (std::chrono::steady_clock::now() >= next_beat) {
        Beat();
        next_beat += std::chrono::milliseconds(50);
      }
    }
  }

  void OnMessage(const proto::CoordinatorMessage& received) {
    if (received.has_start()) {
      ++started_;
      Job job{script_(received.start()), 0, std::chrono::steady_clock::now()};
      for (proto::SequenceUpdate& update : job.updates)
        update.set_sequence_id(received.start().sequence_id());
      jobs_[received.start().sequence_id()] = std::move(job);
    } else if (received.has_cancel()) {
      cancelled_ += static_cast<int>(jobs_.erase(received.cancel().sequence_id()));
    } else if (received.has_trace_steps() && traces_) {
      proto::NodeMessage message;
      proto::StepTrace* trace = message.mutable_step_trace();
      trace->set_id(received.trace_steps().id());
      trace->set_dropped(7);
      for (const int track : {0, 1, -1}) {
        proto::TraceSpan* span = trace->add_spans();
        span->set_name(track == 0 ? "step" : track == 1 ? "verdict" : "round");
        span->set_track(track);
        span->set_begin_s(0.25);
        span->set_seconds(0.5);
        span->set_sequence_id(track == 0 ? 0 : (uint64_t{1} << 60) + 1);
        (*span->mutable_args())["rows"] = 3;
      }
      (void)channel_->Send(message);
    } else if (received.has_stop()) {
      told_to_stop_ = true;
      proto::NodeMessage goodbye;
      goodbye.mutable_goodbye()->set_reason("told to stop");
      (void)channel_->Send(goodbye);
    }
  }

  void Step() {
    const auto now = std::chrono::steady_clock::now();
    proto::NodeMessage message;
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      Job& job = it->second;
      if (now >= job.due && job.next < job.updates.size()) {
        *message.mutable_progress()->add_updates() = job.updates[job.next++];
        job.due = now + std::chrono::microseconds(static_cast<int64_t>(step_s_ * 1e6));
      }
      const bool over = job.next > 0 && job.updates[job.next - 1].finished();
      it = over ? jobs_.erase(it) : std::next(it);
    }
    if (message.has_progress()) (void)channel_->Send(message);
  }

  void Beat() {
    proto::NodeMessage message;
    proto::NodeStatus* status = message.mutable_heartbeat()->mutable_status();
    status->set_step(++beats_);
    status->set_running(static_cast<int>(jobs_.size()));
    status->set_kv_blocks_total(1000);
    (void)channel_->Send(message);
  }

  struct Job {
    std::vector<proto::SequenceUpdate> updates;
    size_t next = 0;
    std::chrono::steady_clock::time_point due;
  };
  std::unique_ptr<comm::ClientChannel> channel_;
  const std::string id_;
  const Script script_;
  const double step_s_;
  std::map<uint64_t, Job> jobs_;
  uint64_t beats_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> started_{0}, cancelled_{0};
  std::atomic<bool> told_to_stop_{false}, traces_{true};
  std::thread thread_;
};

// The text, one byte per update, then EOS.
inline std::vector<proto::SequenceUpdate> SayText(const std::string& text) {
  std::vector<proto::SequenceUpdate> updates;
  const std::vector<TokenId> tokens = Bytes(text, /*eos=*/true);
  for (const TokenId token : tokens) {
    updates.emplace_back();
    updates.back().add_stable_tokens(token);
  }
  updates.back().set_finished(true);
  *updates.back().add_hypotheses() = MakeHypothesis(tokens, -1.5, true);
  *updates.back().mutable_stats() = MakeStats();
  return updates;
}

// The updates of a text that ends with the first of the request's stop strings in it, as a worker's
// do. One token is one byte.
inline std::vector<proto::SequenceUpdate> SayUpToStop(const std::string& text,
                                                      const proto::StartSequence& start) {
  size_t end = std::string::npos;
  for (const std::string& stop : start.decoding().stop_strings()) {
    const size_t begin = text.find(stop);
    if (begin != std::string::npos) end = std::min(end, begin + stop.size());
  }
  if (end == std::string::npos) return SayText(text);
  std::vector<proto::SequenceUpdate> updates = SayText(text.substr(0, end));
  updates.erase(updates.end() - 2);  // the update of the last byte; the end of sequence ends it too
  proto::SequenceUpdate& last = updates.back();
  last.clear_stable_tokens();
  last.add_stable_tokens(static_cast<unsigned char>(text[end - 1]));
  *last.mutable_hypotheses(0) = MakeHypothesis(Bytes(text.substr(0, end)), -1.5, true);
  return updates;
}

}  // namespace coppice::coordinator
