// Checks of registrations and heartbeats before the coordinator uses them.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "plan/step_plan.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice::proto {

using wire::Bad;
using wire::BadEntry;
using wire::CheckEntries;
using wire::CheckRange;
using wire::kMostStatistic;

namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 40;  // sums and products of it fit into 64 bits
constexpr int kMostRanks = 1 << 16;
constexpr size_t kLongestName = 256;
constexpr int kMostReasons = 32;
constexpr int kMostDraftNodes = 1 << 12;

// Names appear in labels, log lines and JSON.
absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (name.size() > kLongestName) {
    return Bad(field, absl::StrCat(name.size(), " bytes, at most ", kLongestName));
  }
  if (std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c); }))
    return absl::OkStatus();
  return Bad(field, "is not printable ASCII");
}

constexpr int kMostSpans = 1 << 17;
constexpr int kMostTracks = 1 << 12;
constexpr size_t kMostArgs = 16;

absl::Status CheckSpanName(absl::string_view field, absl::string_view name) {
  const auto plain = [](char c) { return absl::ascii_isalnum(c) || c == ' ' || c == '_'; };
  if (std::all_of(name.begin(), name.end(), plain)) return CheckName(field, name);
  return Bad(field, "has other characters than letters, digits, spaces and _");
}

absl::Status CheckReasons(const std::string& field,
                          const google::protobuf::Map<std::string, uint64_t>& counts) {
  COPPICE_RETURN_IF_ERROR(
      CheckRange(field + ": length", static_cast<int64_t>(counts.size()), 0, kMostReasons));
  for (const auto& [reason, count] : counts) COPPICE_RETURN_IF_ERROR(CheckName(field, reason));
  return absl::OkStatus();
}

absl::Status CheckModel(const proto::ModelInfo& model) {
  COPPICE_RETURN_IF_ERROR(
      CheckRange("model.vocab_size", int64_t{model.vocab_size()}, 1, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("model.max_positions", int64_t{model.max_positions()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckName("model.dtype", model.dtype()));
  COPPICE_RETURN_IF_ERROR(CheckName("model.kv_dtype", model.kv_dtype()));
  return CheckEntries("model.eos_ids", model.eos_ids(), 0, model.vocab_size());
}

}  // namespace

absl::Status CheckRegistration(const proto::Register& registration) {
  const bool worker = registration.role() == proto::WORKER_LEADER;
  if (!worker && registration.role() != proto::DRAFT_NODE) return Bad("role", "names no role");
  COPPICE_RETURN_IF_ERROR(CheckName("node_id", registration.node_id()));
  if (registration.process_id() == 0) {
    return Bad("process_id", "is missing; nodes and coordinator need the same version of Coppice");
  }
  COPPICE_RETURN_IF_ERROR(CheckName("draft_endpoint", registration.draft_endpoint()));
  const absl::string_view endpoint = registration.draft_endpoint();
  if (!worker && !absl::StartsWith(endpoint, "direct://") &&
      !absl::StartsWith(endpoint, "tcp://")) {
    return Bad("draft_endpoint",
               absl::StrCat("\"", endpoint, "\" is neither direct:// nor tcp://"));
  }
  COPPICE_RETURN_IF_ERROR(CheckModel(registration.model()));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("ranks: length", int64_t{registration.ranks_size()}, worker ? 1 : 0, kMostRanks));
  for (int i = 0; i < registration.ranks_size(); ++i) {
    if (registration.ranks(i).rank() != i) {
      return BadEntry("ranks", i, absl::StrCat("is rank ", registration.ranks(i).rank()));
    }
  }
  COPPICE_RETURN_IF_ERROR(
      CheckRange("kv_blocks_total", registration.kv_blocks_total(), 0, kMostBlocks));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("kv_block_size", int64_t{registration.kv_block_size()}, 0, 1 << 16));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("kv_windows: length", int64_t{registration.kv_windows_size()}, 0, kMostKvGroups));
  for (const int32_t window : registration.kv_windows())
    COPPICE_RETURN_IF_ERROR(CheckRange("kv_windows", int64_t{window}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("max_rows", int64_t{registration.max_rows()}, 0, INT32_MAX));
  return CheckRange("kv_step_tokens", int64_t{registration.kv_step_tokens()}, 0, INT32_MAX);
}

absl::Status CheckStepTrace(const proto::StepTrace& trace) {
  COPPICE_RETURN_IF_ERROR(CheckRange("spans: length", int64_t{trace.spans_size()}, 0, kMostSpans));
  for (const proto::TraceSpan& span : trace.spans()) {
    COPPICE_RETURN_IF_ERROR(CheckSpanName("name", span.name()));
    COPPICE_RETURN_IF_ERROR(CheckRange("track", int64_t{span.track()}, -1, kMostTracks));
    COPPICE_RETURN_IF_ERROR(CheckRange("begin_s", span.begin_s(), -kMostStatistic, kMostStatistic));
    COPPICE_RETURN_IF_ERROR(CheckRange("seconds", span.seconds(), 0.0, kMostStatistic));
    if (span.args().size() > kMostArgs)
      return Bad("args: length", absl::StrCat(span.args().size()));
    for (const auto& [name, value] : span.args()) {
      COPPICE_RETURN_IF_ERROR(CheckSpanName("args", name));
      COPPICE_RETURN_IF_ERROR(CheckRange("args", value, -kMostStatistic, kMostStatistic));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNodeStatus(const proto::NodeStatus& status) {
  COPPICE_RETURN_IF_ERROR(CheckRange("still_s", status.still_s(), 0.0, kMostStatistic));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("longest_stall_s", status.longest_stall_s(), 0.0, kMostStatistic));
  COPPICE_RETURN_IF_ERROR(CheckRange("running", int64_t{status.running()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("waiting", int64_t{status.waiting()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("sessions", int64_t{status.sessions()}, 0, INT32_MAX));
  const int64_t total = status.kv_blocks_total();
  COPPICE_RETURN_IF_ERROR(CheckRange("kv_blocks_total", total, 0, kMostBlocks));
  COPPICE_RETURN_IF_ERROR(CheckRange("kv_blocks_used", status.kv_blocks_used(), 0, total));
  COPPICE_RETURN_IF_ERROR(CheckRange("kv_blocks_cached", status.kv_blocks_cached(), 0, total));
  COPPICE_RETURN_IF_ERROR(CheckRange("energy_joules", status.energy_joules(), 0.0, kMostStatistic));
  COPPICE_RETURN_IF_ERROR(CheckName("energy_source", status.energy_source()));
  COPPICE_RETURN_IF_ERROR(
      CheckReasons("counters.rounds_without_draft", status.counters().rounds_without_draft()));
  COPPICE_RETURN_IF_ERROR(
      CheckReasons("counters.drafts_dropped", status.counters().drafts_dropped()));
  COPPICE_RETURN_IF_ERROR(CheckReasons("counters.draft_moves", status.counters().draft_moves()));
  COPPICE_RETURN_IF_ERROR(
      CheckReasons("counters.suffix_nodes_drafted", status.counters().suffix_nodes_drafted()));
  COPPICE_RETURN_IF_ERROR(
      CheckReasons("counters.suffix_nodes_accepted", status.counters().suffix_nodes_accepted()));
  if (status.draft_nodes_size() > kMostDraftNodes)
    return Bad("draft_nodes: length", absl::StrCat(status.draft_nodes_size()));
  for (const proto::DraftNodeUse& use : status.draft_nodes()) {
    COPPICE_RETURN_IF_ERROR(CheckName("draft_nodes.node_id", use.node_id()));
    COPPICE_RETURN_IF_ERROR(
        CheckRange("draft_nodes.sessions", int64_t{use.sessions()}, 0, INT32_MAX));
    COPPICE_RETURN_IF_ERROR(
        CheckRange("draft_nodes.mean_reply_s", use.mean_reply_s(), 0.0, kMostStatistic));
  }
  return absl::OkStatus();
}

}  // namespace coppice::proto
