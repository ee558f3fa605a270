// Where the time of the engine's loop goes: spans of its parts, of rounds and of drafts. For a file
// (--trace_file), or for the coordinator, which asks for some seconds (GET /debug/trace). When
// neither wants it, a part costs a branch. Thread-compatible: owned by the engine.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/chrome_trace.h"
#include "base/clock.h"
#include "proto/control.pb.h"

namespace coppice::worker {

struct StepSpan {
  static constexpr int kLoop = 0;  // track of the engine's thread; verdicts have those above
  static constexpr int kOverlapping = -1;  // rounds and drafts, of many sequences at a time
  const char* name = "";                   // a literal
  int track = kLoop;
  double begin_s = 0, seconds = 0;
  uint64_t sequence = 0;  // 0: of none
  std::vector<std::pair<const char*, double>> args = {};
};

class StepTrace {
 public:
  // Spans that the coordinator gets at most; more are counted. About 5 MB of JSON.
  static constexpr size_t kMostRecorded = 50000;

  // path: "" = no file. clock must outlive the trace.
  StepTrace(const std::string& path, const Clock* clock);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  bool on() const { return on_; }
  double Now() const { return clock_->NowSeconds(); }
  // Without effect while it is off.
  void Add(StepSpan span);

  // A span on the track of the loop, from now to its end. Spans nest.
  class Part {
   public:
    Part(StepTrace* trace, const char* name, uint64_t sequence)
        : trace_(trace->on() ? trace : nullptr), name_(name), sequence_(sequence) {
      if (trace_ != nullptr) begin_s_ = trace_->Now();
    }
    ~Part() {
      if (trace_ != nullptr)
        trace_->Add({name_, StepSpan::kLoop, begin_s_, trace_->Now() - begin_s_, sequence_});
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    StepTrace* const trace_;
    const char* const name_;
    const uint64_t sequence_;
    double begin_s_ = 0;
  };
  [[nodiscard]] Part Time(const char* name, uint64_t sequence = 0) {
    return Part(this, name, sequence);
  }

  // f(), in such a span.
  template <typename F>
  auto Timed(const char* name, const F& f) {
    const Part part = Time(name);
    return f();
  }

  // Writes what was added to the file. Called once a step, while draft nodes work.
  void Write();

  // Begins a record of so many seconds for the coordinator; one that is under way is dropped.
  void Record(uint64_t id, double seconds);
  bool recorded() const { return recording_ && Now() >= record_end_s_; }
  // The record; times count from Record. Ends it.
  proto::StepTrace TakeRecord();

 private:
  void Record(const StepSpan& span);

  const Clock* const clock_;
  std::FILE* file_ = nullptr;
  ChromeTrace text_;
  bool on_ = false, recording_ = false;
  double record_begin_s_ = 0, record_end_s_ = 0;
  proto::StepTrace record_;
};

}  // namespace coppice::worker
