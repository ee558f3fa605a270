#include "proto/convert.h"

#include <limits>
#include <optional>
#include <set>
#include <string>

#include "base/output_format.h"
#include "base/printable_name.h"
#include "base/status.h"
#include "decoding/method.h"
#include "decoding/parameter.h"
#include "decoding/topology.h"
#include "proto/field_checks.h"

namespace coppice::proto {

using wire::Bad;
using wire::BadEntry;
using wire::CheckEntries;
using wire::CheckLength;
using wire::Fill;
using wire::ToVector;

namespace {

// Far above what a request may have. Bounds the automaton that a worker makes of them.
constexpr size_t kMostStopBytes = 65000;

proto::Parameter ToMessage(const decoding::ParameterRow& row,
                           const decoding::DecodingParams& params) {
  proto::Parameter message;
  message.set_name(row.name);
  const decoding::ParameterValue value = row.member.get(params);
  if (const auto* integer = std::get_if<int64_t>(&value)) message.set_integer(*integer);
  if (const auto* number = std::get_if<double>(&value)) message.set_number(*number);
  if (const auto* flag = std::get_if<bool>(&value)) message.set_flag(*flag);
  if (const auto* seed = std::get_if<uint64_t>(&value)) message.set_seed(*seed);
  return message;
}

std::optional<decoding::ParameterValue> ValueOf(const proto::Parameter& message) {
  switch (message.value_case()) {
    case proto::Parameter::kInteger:
      return decoding::ParameterValue(int64_t{message.integer()});
    case proto::Parameter::kNumber:
      return decoding::ParameterValue(message.number());
    case proto::Parameter::kFlag:
      return decoding::ParameterValue(message.flag());
    case proto::Parameter::kSeed:
      return decoding::ParameterValue(uint64_t{message.seed()});
    case proto::Parameter::VALUE_NOT_SET:
      break;
  }
  return std::nullopt;
}

// The message must have every scalar of the table exactly once, in any order.
absl::Status ReadParameters(const proto::Decoding& message, decoding::DecodingParams* params) {
  std::set<const decoding::ParameterRow*> seen;
  for (int i = 0; i < message.parameters_size(); ++i) {
    const proto::Parameter& parameter = message.parameters(i);
    const decoding::ParameterRow* row = decoding::FindParameter(parameter.name());
    if (row == nullptr || !row->scalar()) {
      return BadEntry("parameters", i,
                      absl::StrCat("\"", PrintableName(parameter.name()), "\" is no parameter"));
    }
    if (!seen.insert(row).second) return Bad(row->name, "is given twice");
    const std::optional<decoding::ParameterValue> value = ValueOf(parameter);
    if (!value) return Bad(row->name, "has no value");
    COPPICE_RETURN_IF_ERROR(decoding::SetParameter(*row, *value, params));
  }
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.scalar() && seen.count(&row) == 0) return Bad(row.name, "is missing");
  }
  return absl::OkStatus();
}

absl::Status CheckBias(const proto::Decoding& message) {
  COPPICE_RETURN_IF_ERROR(CheckEntries("bias_tokens", message.bias_tokens(), 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("bias_values", message.bias_values_size(), message.bias_tokens_size()));
  for (int i = 0; i < message.bias_values_size(); ++i) {
    if (!(message.bias_values(i) <= std::numeric_limits<double>::max())) {
      return BadEntry("bias_values", i, "is not a number");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStopStrings(const proto::Decoding& message) {
  size_t bytes = 0;
  for (int i = 0; i < message.stop_strings_size(); ++i) {
    if (message.stop_strings(i).empty()) return BadEntry("stop_strings", i, "is empty");
    bytes += message.stop_strings(i).size();
  }
  if (bytes <= kMostStopBytes) return absl::OkStatus();
  return Bad("stop_strings",
             absl::StrCat("have ", bytes, " bytes, at most ", kMostStopBytes, " are read"));
}

// grammar/ checks whether the text can be read.
absl::StatusOr<FormatSpec> ReadFormat(const proto::Decoding& message) {
  FormatSpec format;
  const absl::StatusOr<FormatSpec::Kind> kind = ParseFormatKind(message.format_kind());
  if (!kind.ok()) return Bad("format_kind", std::string(kind.status().message()));
  format.kind = *kind;
  const size_t bytes = message.format_text().size();
  if (bytes > kMostFormatBytes) {
    return Bad("format_text",
               absl::StrCat("has ", bytes, " bytes, at most ", kMostFormatBytes, " are read"));
  }
  const bool none = format.kind == FormatSpec::Kind::kNone;
  if (none != (bytes == 0)) return Bad("format_text", none ? "has no kind" : "is empty");
  format.text = message.format_text();
  return format;
}

}  // namespace

proto::Decoding DecodingToMessage(const decoding::DecodingParams& params) {
  proto::Decoding message;
  message.set_kind(std::string(sampling::DecodingKindName(params.kind)));
  if (params.method != nullptr) message.set_method(std::string(params.method->name));
  Fill(params.stop_ids, message.mutable_stop_ids());
  message.set_sampling_scope(std::string(sampling::SamplingScopeName(params.sampling.mode)));
  for (const auto& [token, value] : params.sampling.logit_bias) {
    message.add_bias_tokens(token);
    message.add_bias_values(value);
  }
  message.set_draft_tree(params.draft_tree);
  message.mutable_stop_strings()->Add(params.stop_strings.begin(), params.stop_strings.end());
  message.set_show_special_tokens(params.show_special_tokens);
  message.set_format_kind(std::string(FormatKindName(params.format_spec.kind)));
  message.set_format_text(params.format_spec.text);
  Fill(params.width_schedule, message.mutable_width_schedule());
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.scalar()) *message.add_parameters() = ToMessage(row, params);
  }
  return message;
}

absl::StatusOr<decoding::DecodingParams> DecodingFromMessage(const proto::Decoding& message) {
  decoding::DecodingParams params;
  COPPICE_ASSIGN_OR_RETURN(params.kind, sampling::ParseDecodingKind(message.kind()));
  params.method = decoding::FindMethod(message.method());
  if (params.method == nullptr) {
    return Bad("method", absl::StrCat("\"", PrintableName(message.method()), "\" is no method"));
  }
  COPPICE_RETURN_IF_ERROR(ReadParameters(message, &params));
  COPPICE_RETURN_IF_ERROR(CheckEntries("stop_ids", message.stop_ids(), 0, INT32_MAX));
  params.stop_ids = ToVector(message.stop_ids());
  COPPICE_ASSIGN_OR_RETURN(params.sampling.mode,
                           sampling::ParseSamplingScope(message.sampling_scope()));
  COPPICE_RETURN_IF_ERROR(CheckBias(message));
  for (int i = 0; i < message.bias_tokens_size(); ++i) {
    params.sampling.logit_bias.emplace_back(message.bias_tokens(i), message.bias_values(i));
  }
  COPPICE_RETURN_IF_ERROR(decoding::ParseTopology(message.draft_tree()).status());
  params.draft_tree = message.draft_tree();
  COPPICE_RETURN_IF_ERROR(CheckStopStrings(message));
  params.stop_strings.assign(message.stop_strings().begin(), message.stop_strings().end());
  params.show_special_tokens = message.show_special_tokens();
  COPPICE_ASSIGN_OR_RETURN(params.format_spec, ReadFormat(message));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("width_schedule", message.width_schedule(), 1, decoding::kMostBeams + 1));
  params.width_schedule = ToVector(message.width_schedule());
  return params;
}

proto::Trace TraceToMessage(const coppice::TraceContext& trace) {
  proto::Trace message;
  if (trace.trace_id.empty()) return message;
  message.set_parent(TraceParentText(trace));
  message.set_state(trace.state);
  return message;
}

coppice::TraceContext TraceFromMessage(const proto::Trace& message) {
  std::optional<coppice::TraceContext> trace = ParseTraceParent(message.parent());
  if (!trace) return {};
  trace->state = ParseTraceState({message.state()});
  return *std::move(trace);
}

absl::Status CheckTokens(absl::Span<const int32_t> tokens, int vocab_size, const char* field) {
  return CheckEntries(field, tokens, 0, vocab_size);
}

}  // namespace coppice::proto
