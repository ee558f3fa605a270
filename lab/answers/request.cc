#include "lab/answers/request.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "decoding/draft_size.h"
#include "decoding/method.h"
#include "sampling/rng.h"

namespace coppice::answers {
namespace {

constexpr std::array<sampling::DecodingKind, 4> kKinds = {
    sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
    sampling::DecodingKind::kBeamSamplingWithoutReplacement, sampling::DecodingKind::kBeamSearch};

struct MethodCase {
  std::string method;
  sampling::DecodingKind kind;
};

std::vector<MethodCase> MethodCases() {
  std::vector<MethodCase> cases;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    for (const sampling::DecodingKind kind : row.serves)
      cases.push_back({std::string(row.name), kind});
  }
  for (const sampling::DecodingKind kind : kKinds) {
    cases.push_back({"auto", kind});
    cases.push_back({"none", kind});
  }
  return cases;
}

// The pseudo-random numbers of one request.
class Draws {
 public:
  Draws(uint64_t seed, int number) : seed_(seed), number_(static_cast<uint32_t>(number)) {}

  uint32_t Bits() {
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_),
                                         static_cast<uint32_t>(seed_ >> 32)};
    return sampling::Philox({number_, next_++, 0, 0}, key)[0];
  }
  int Below(int count) {
    return static_cast<int>((uint64_t{Bits()} * static_cast<uint64_t>(count)) >> 32);
  }
  int Between(int least, int most) { return least + Below(most - least + 1); }
  bool OneIn(int count) { return Below(count) == 0; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }

 private:
  uint64_t seed_;
  uint32_t number_, next_ = 0;
};

// The first 5 to 30 tokens of a prompt. In one of eight cases a whole prompt, in one of four random
// tokens.
std::vector<TokenId> DrawPrompt(const RequestSource& source, Draws* draws) {
  std::vector<TokenId> prompt =
      source.prompts[draws->Below(static_cast<int>(source.prompts.size()))];
  const size_t length = draws->Between(5, 30);
  if (draws->OneIn(4)) {
    prompt.resize(length);
    for (TokenId& token : prompt) token = draws->Below(source.vocab_size);
  } else if (!draws->OneIn(8)) {
    prompt.resize(std::min(prompt.size(), length));
  }
  return prompt;
}

// Tokens of the prompt are likely in the text. So stop ids among them end the text, and biases on
// them have an effect.
TokenId DrawToken(const RequestSource& source, const std::vector<TokenId>& prompt, Draws* draws) {
  return draws->OneIn(4) ? draws->Below(source.vocab_size)
                         : prompt[draws->Below(static_cast<int>(prompt.size()))];
}

void DrawSampling(const RequestSource& source, const AnswerRequest& request, bool joint,
                  Draws* draws, decoding::DecodingParams* params) {
  sampling::SamplingParams& sampling = params->sampling;
  for (int i = draws->OneIn(3) ? draws->Between(1, 4) : 0; i > 0; --i) {
    const double bias =
        draws->Of({-std::numeric_limits<double>::infinity(), -2.0, -0.5, 0.75, 4.0});
    sampling.logit_bias.emplace_back(DrawToken(source, request.prompt, draws), bias);
  }
  const bool search = params->kind == sampling::DecodingKind::kBeamSearch;
  if (search && !draws->OneIn(16)) {
    sampling.temperature = draws->Of({1.0, 1.0, 0.0});
    return;
  }
  // Beam sampling has no temperature 0. A few requests use it and are refused.
  const bool zero =
      params->kind == sampling::DecodingKind::kMultinomial ? draws->OneIn(4) : draws->OneIn(40);
  sampling.temperature = zero ? 0 : draws->Of({0.6, 1.0, 1.3});
  sampling.top_k = draws->Of({0, 0, 0, 1, 2, 10, 40});
  sampling.top_p = draws->Of({1.0, 1.0, 1.0, 0.0, 0.5, 0.8, 0.95});
  sampling.min_p = draws->Of({0.0, 0.0, 0.0, 0.02, 0.1, 0.3});
  sampling.mode =
      joint || draws->OneIn(24)
          ? draws->Of({sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
                       sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut})
          : draws->Of({sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw});
}

void DrawEnds(const RequestSource& source, const AnswerRequest& request, Draws* draws,
              decoding::DecodingParams* params) {
  params->max_tokens = draws->OneIn(12) ? draws->Between(1, 3) : draws->Between(8, 24);
  if (!draws->OneIn(4)) params->stop_ids = source.stop_ids;
  for (int i = draws->OneIn(2) ? draws->Between(1, 3) : 0; i > 0; --i) {
    params->stop_ids.push_back(DrawToken(source, request.prompt, draws));
  }
  params->min_tokens = draws->Of({0, 0, 1, 4, 9});
  params->length_penalty = draws->Of({1.0, 1.0, 0.0, 0.5, 1.7, -0.5});
  params->stop_when_full = !draws->OneIn(3);
  params->refill = !draws->OneIn(3);
}

void DrawOptions(Draws* draws, decoding::DecodingParams* params) {
  params->draft_width = draws->OneIn(3) ? draws->Between(1, 8) : 0;
  params->draft_depth = draws->OneIn(6) ? draws->Between(1, 5) : 0;
  params->draft_top_k = draws->Of({1, 2, 8, 64, 64, 64, 2048});
  params->width_threshold = draws->Of({0.0, 0.0, 0.3, 0.7, 0.9, 1.0});
  params->min_width = draws->Between(1, params->beam_width);
  params->draft_beams = draws->Between(1, 6);
  params->mjsd_threshold = draws->Of({0.0, 0.1, 0.4, 0.8, 1.0});
  params->fallback_threshold = draws->Of({0.0, 0.3, 0.5, 0.9});
  params->rollback_threshold = draws->Of({0.5, 1.0, 2.0, 5.0});
  params->joint_tokens = draws->Between(1, 5);
}

// Restricts the fields to those that the method reads and serves, except in a few requests.
void FitOptions(const decoding::MethodRow* row, Draws* draws, decoding::DecodingParams* params) {
  if (row == nullptr || draws->OneIn(24)) return;
  if (row->form == decoding::DraftForm::kPath)
    params->draft_width = std::min(params->draft_width, 1);
  if (row->most_children > 0)
    params->draft_width = std::min(params->draft_width, row->most_children);
  if (!row->reads("width_threshold")) params->width_threshold = 0;
  if (row->reads("draft_tree") && draws->OneIn(2)) {
    using Text = const char*;
    params->draft_tree =
        row->most_children > 0
            ? draws->Of<Text>({"chain", "2-1-1", "2-2-1-1", "1-2"})
            : draws->Of<Text>({"chain", "eagle", "2-2-1", "3-1-1", "4-2-1-1", "5-3"});
  }
}

void DrawDrafts(Draws* draws, AnswerRequest* request) {
  const decoding::DecodingParams& params = request->params;
  const decoding::DraftSize size = decoding::DraftSizeOf(params);
  const bool plain = draws->OneIn(5);
  const int width = size.width > 0 ? size.width : draws->Between(1, 8);
  const int depth = size.depth > 0 ? size.depth : draws->Between(1, 5);
  const int late = draws->Of({0, 0, 0, 2, 3});
  if (!size.drafts || plain) return;
  request->forest_width = width;
  // A layer of dynamic width has at most as many beams as the request's drafts.
  if (params.width_threshold > 0 && size.width == 0) {
    request->forest_width = std::min(width, decoding::AutoDraftWidth(params.beam_width));
  }
  request->forest_depth = depth;
  request->late = late;
}

}  // namespace

AnswerRequest MakeRequest(const RequestSource& source, int number) {
  COPPICE_CHECK(!source.prompts.empty());
  static const auto* cases = new std::vector<MethodCase>(MethodCases());
  Draws draws(source.seed, number);
  AnswerRequest request;
  request.number = number;
  request.prompt = DrawPrompt(source, &draws);
  const MethodCase& method = (*cases)[number % cases->size()];
  const decoding::MethodRow* row = decoding::FindMethod(method.method);
  decoding::DecodingParams& params = request.params;
  request.method = method.method;
  params.kind = draws.OneIn(40) ? kKinds[draws.Below(kKinds.size())] : method.kind;
  const bool beams = params.kind != sampling::DecodingKind::kMultinomial;
  params.beam_width = beams ? draws.Between(1, 8) : 1;
  params.num_hypotheses = draws.Between(1, params.beam_width);
  params.seed = uint64_t{draws.Bits()} << 32 | draws.Bits();
  const bool any_method = row == nullptr && params.kind != sampling::DecodingKind::kMultinomial &&
                          params.kind != sampling::DecodingKind::kBeamSearch;
  DrawSampling(source, request, any_method || (row != nullptr && row->joint_sampling), &draws,
               &params);
  if (row != nullptr && row->greedy_only && params.kind == sampling::DecodingKind::kMultinomial) {
    params.sampling.temperature = 0;
  }
  DrawEnds(source, request, &draws, &params);
  params.set_semantics = params.kind == sampling::DecodingKind::kBeamSampling && draws.OneIn(4);
  DrawOptions(&draws, &params);
  FitOptions(row, &draws, &params);
  DrawDrafts(&draws, &request);
  return request;
}

absl::StatusOr<decoding::DecodingParams> ParamsOf(const AnswerRequest& request) {
  decoding::DecodingParams params = request.params;
  params.plain = request.method == "none";
  if (!params.plain && request.method != "auto") {
    params.method = decoding::FindMethod(request.method);
    if (params.method == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("method: unknown ", request.method));
    }
  }
  COPPICE_ASSIGN_OR_RETURN(params.method, decoding::ResolveMethod(params));
  return params;
}

std::string RequestName(const AnswerRequest& request) {
  const decoding::DecodingParams& params = request.params;
  std::string name =
      absl::StrCat(request.number, " ", request.method, " ",
                   sampling::DecodingKindName(params.kind), " W=", params.beam_width);
  if (request.forest_width > 0) {
    absl::StrAppend(&name, " drafts ", request.forest_width, " x ", request.forest_depth);
  }
  return name;
}

}  // namespace coppice::answers
