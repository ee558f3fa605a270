#include "proto/convert.h"

#include <limits>
#include <string>

#include "base/status.h"
#include "decoding/topology.h"
#include "proto/field_checks.h"

namespace coppice {

using namespace wire;

namespace {

absl::Status CheckWarp(const proto::Decoding& message) {
  const double most = std::numeric_limits<double>::max();
  if (!IsTemperature(message.temperature())) {
    return Bad("temperature", absl::StrCat(message.temperature(), " is neither 0 nor in [",
                                           kLeastTemperature, ", ", most, "]"));
  }
  COPPICE_RETURN_IF_ERROR(CheckRange("top_k", int64_t{message.top_k()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("top_p", message.top_p(), 0.0, 1.0));
  COPPICE_RETURN_IF_ERROR(CheckRange("min_p", message.min_p(), 0.0, 1.0));
  COPPICE_RETURN_IF_ERROR(CheckEntries("bias_tokens", message.bias_tokens(), 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("bias_values", message.bias_values_size(), message.bias_tokens_size()));
  for (int i = 0; i < message.bias_values_size(); ++i) {
    if (!(message.bias_values(i) <= most)) return BadEntry("bias_values", i, "is not a number");
  }
  return absl::OkStatus();
}

absl::Status CheckDecoding(const proto::Decoding& message) {
  const double most = std::numeric_limits<double>::max();
  if (message.method().empty()) return Bad("method", "is empty");
  COPPICE_RETURN_IF_ERROR(CheckRange("beam_width", int64_t{message.beam_width()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("num_hypotheses", int64_t{message.num_hypotheses()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(CheckRange("max_tokens", int64_t{message.max_tokens()}, 1, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("min_tokens", int64_t{message.min_tokens()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("length_penalty", message.length_penalty(), -most, most));
  COPPICE_RETURN_IF_ERROR(CheckEntries("stop_ids", message.stop_ids(), 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("draft_width", int64_t{message.draft_width()}, 0, kMostBeams));
  COPPICE_RETURN_IF_ERROR(CheckRange("draft_depth", int64_t{message.draft_depth()}, 0, kMostBeams));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("draft_support", int64_t{message.draft_support()}, 1, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("width_threshold", message.width_threshold(), 0.0, most));
  COPPICE_RETURN_IF_ERROR(CheckRange("min_width", int64_t{message.min_width()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(CheckRange("draft_beams", int64_t{message.draft_beams()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(CheckRange("mjsd_threshold", message.mjsd_threshold(), 0.0, 1.0));
  COPPICE_RETURN_IF_ERROR(CheckRange("fallback_threshold", message.fallback_threshold(), 0.0, 1.0));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("rollback_threshold", message.rollback_threshold(), 0.0, most));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("joint_tokens", int64_t{message.joint_tokens()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(ParseTopology(message.draft_tree()).status());
  return CheckWarp(message);
}

}  // namespace

proto::Decoding DecodingToMessage(const DecodingParams& params) {
  proto::Decoding message;
  message.set_kind(std::string(DecodingKindName(params.kind)));
  message.set_method(params.method);
  message.set_beam_width(params.beam_width);
  message.set_num_hypotheses(params.num_hypotheses);
  message.set_max_tokens(params.max_tokens);
  message.set_min_tokens(params.min_tokens);
  message.set_seed(params.seed);
  message.set_length_penalty(params.length_penalty);
  message.set_stop_when_full(params.stop_when_full);
  message.set_refill(params.refill);
  Fill(params.stop_ids, message.mutable_stop_ids());
  message.set_temperature(params.warp.temperature);
  message.set_top_k(params.warp.top_k);
  message.set_top_p(params.warp.top_p);
  message.set_min_p(params.warp.min_p);
  message.set_warp_mode(std::string(WarpModeName(params.warp.mode)));
  for (const auto& [token, value] : params.warp.logit_bias) {
    message.add_bias_tokens(token);
    message.add_bias_values(value);
  }
  message.set_draft_width(params.draft_width);
  message.set_draft_depth(params.draft_depth);
  message.set_draft_support(params.draft_support);
  message.set_width_threshold(params.width_threshold);
  message.set_min_width(params.min_width);
  message.set_set_semantics(params.set_semantics);
  message.set_draft_tree(params.draft_tree);
  message.set_draft_beams(params.draft_beams);
  message.set_mjsd_threshold(params.mjsd_threshold);
  message.set_fallback_threshold(params.fallback_threshold);
  message.set_rollback_threshold(params.rollback_threshold);
  message.set_joint_tokens(params.joint_tokens);
  return message;
}

absl::StatusOr<DecodingParams> DecodingFromMessage(const proto::Decoding& message) {
  COPPICE_RETURN_IF_ERROR(CheckDecoding(message));
  DecodingParams params;
  COPPICE_ASSIGN_OR_RETURN(params.kind, ParseDecodingKind(message.kind()));
  params.method = message.method();
  params.beam_width = message.beam_width();
  params.num_hypotheses = message.num_hypotheses();
  params.max_tokens = message.max_tokens();
  params.min_tokens = message.min_tokens();
  params.seed = message.seed();
  params.length_penalty = message.length_penalty();
  params.stop_when_full = message.stop_when_full();
  params.refill = message.refill();
  params.stop_ids = ToVector(message.stop_ids());
  params.warp.temperature = message.temperature();
  params.warp.top_k = message.top_k();
  params.warp.top_p = message.top_p();
  params.warp.min_p = message.min_p();
  COPPICE_ASSIGN_OR_RETURN(params.warp.mode, ParseWarpMode(message.warp_mode()));
  for (int i = 0; i < message.bias_tokens_size(); ++i) {
    params.warp.logit_bias.emplace_back(message.bias_tokens(i), message.bias_values(i));
  }
  params.draft_width = message.draft_width();
  params.draft_depth = message.draft_depth();
  params.draft_support = message.draft_support();
  params.width_threshold = message.width_threshold();
  params.min_width = message.min_width();
  params.set_semantics = message.set_semantics();
  params.draft_tree = message.draft_tree();
  params.draft_beams = message.draft_beams();
  params.mjsd_threshold = message.mjsd_threshold();
  params.fallback_threshold = message.fallback_threshold();
  params.rollback_threshold = message.rollback_threshold();
  params.joint_tokens = message.joint_tokens();
  return params;
}

absl::Status CheckTokens(absl::Span<const int32_t> tokens, int vocab_size, const char* field) {
  return CheckEntries(field, tokens, 0, vocab_size);
}

}  // namespace coppice
