#include "worker/step_trace.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace coppice::worker {
namespace {

constexpr int kProcess = 1;

// The sequence as text: its 64 bits are more than a number of JSON keeps everywhere.
ChromeTrace::Args ArgsOf(const StepSpan& span) {
  ChromeTrace::Args args;
  if (span.sequence != 0) args.emplace_back("sequence", absl::StrCat("\"", span.sequence, "\""));
  for (const auto& [name, value] : span.args) args.emplace_back(name, absl::StrCat(value));
  return args;
}

}  // namespace

StepTrace::StepTrace(const std::string& path, const Clock* clock) : clock_(clock) {
  if (path.empty()) return;
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) {
    spdlog::warn("--trace_file {}: {}", path, std::strerror(errno));
    return;
  }
  on_ = true;
  std::fputs("[\n", file_);
  text_.NameTrack(kProcess, StepSpan::kLoop, "\"engine\"");
}

// Viewers also read a file that was cut off before its end.
StepTrace::~StepTrace() {
  if (file_ == nullptr) return;
  Write();
  std::fputs("{}]\n", file_);
  std::fclose(file_);
}

void StepTrace::Add(StepSpan span) {
  if (recording_) Record(span);
  if (file_ == nullptr) return;
  if (span.track == StepSpan::kOverlapping) {
    text_.Overlapping(kProcess, span.sequence, span.name, span.begin_s, span.seconds, ArgsOf(span));
  } else {
    text_.Span(kProcess, span.track, span.name, span.begin_s, span.seconds, ArgsOf(span));
  }
}

void StepTrace::Write() {
  if (file_ == nullptr) return;
  std::fputs(text_.Take().c_str(), file_);
}

void StepTrace::Record(uint64_t id, double seconds) {
  on_ = recording_ = true;
  record_begin_s_ = Now();
  record_end_s_ = record_begin_s_ + seconds;
  record_ = proto::StepTrace();
  record_.set_id(id);
}

void StepTrace::Record(const StepSpan& span) {
  if (record_.spans_size() >= static_cast<int>(kMostRecorded))
    return record_.set_dropped(record_.dropped() + 1);
  proto::TraceSpan* message = record_.add_spans();
  message->set_name(span.name);
  message->set_track(span.track);
  message->set_begin_s(span.begin_s - record_begin_s_);
  message->set_seconds(span.seconds);
  message->set_sequence_id(span.sequence);
  for (const auto& [name, value] : span.args) (*message->mutable_args())[name] = value;
}

proto::StepTrace StepTrace::TakeRecord() {
  recording_ = false;
  on_ = file_ != nullptr;
  return std::exchange(record_, proto::StepTrace());
}

}  // namespace coppice::worker
