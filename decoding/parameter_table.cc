#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "decoding/parameter.h"

namespace coppice::decoding {
namespace {

constexpr double kMostDouble = std::numeric_limits<double>::max();
constexpr double kMostInt = std::numeric_limits<int>::max();
constexpr char kSpeculative[] = "speculative";

// Member<&DecodingParams::warp, &WarpParams::top_k>(): the scalar at the end of the path.
template <auto... path>
ParameterMember Member() {
  using T = std::decay_t<decltype((std::declval<DecodingParams&>().*....*path))>;
  ParameterMember member;
  member.type = std::is_same_v<T, int>      ? ParameterType::kInteger
                : std::is_same_v<T, double> ? ParameterType::kNumber
                : std::is_same_v<T, bool>   ? ParameterType::kFlag
                                            : ParameterType::kSeed;
  using Wide = std::conditional_t<std::is_same_v<T, int>, int64_t, T>;
  member.get = [](const DecodingParams& params) {
    return ParameterValue(static_cast<Wide>((params.*....*path)));
  };
  member.put = [](ParameterValue value, DecodingParams* params) {
    ((*params).*....*path) = static_cast<T>(std::get<Wide>(value));
  };
  return member;
}

std::vector<ParameterRow> DecodingRows() {
  return {
      {.name = "kind",
       .fields = {"decoding"},
       .own_syntax = "`multinomial`, `beam_sampling`, `beam_sampling_without_replacement` or "
                     "`beam_search`",
       .own_default = "`multinomial`, or what `use_beam_search`, `do_sample` and the width say",
       .text = "The law of the text: which hypotheses may come out, and how often. A method does "
               "not change it."},
      {.name = "beam_width",
       .fields = {"beam_width", "num_beams"},
       .member = Member<&DecodingParams::beam_width>(),
       .range = {1, kMostBeams},
       .limit = ParameterLimit::kMaxBeamWidth,
       .own_default = "1 for `multinomial`; with beams `best_of`, else `n` above 1, else 4",
       .text = "W: the hypotheses that are alive at once."},
      {.name = "num_hypotheses",
       .fields = {"n", "num_return_sequences"},
       .member = Member<&DecodingParams::num_hypotheses>(),
       .range = {1, kMostBeams},
       .own_syntax = "an integer from 1 on, at most the beam width",
       .own_default = "1",
       .text = "With beams the n best hypotheses of one search are the choices; without, each "
               "choice is a sample of its own."},
      {.name = "stop_when_full",
       .fields = {"early_stopping"},
       .member = Member<&DecodingParams::stop_when_full>(),
       .own_syntax = "`true`, `false` or `\"never\"`",
       .own_default = "`true`",
       .read_by = ReadBy::kBeams,
       .text = "`true` ends a search when enough hypotheses have ended; otherwise it goes on until "
               "no live beam can become one of the best."},
      {.name = "refill",
       .member = Member<&DecodingParams::refill>(),
       .read_by = ReadBy::kBeams,
       .text = "Whether `beam_sampling` draws new beams in place of those that ended."},
      {.name = "set_semantics",
       .fields = {"beam_duplicates"},
       .member = Member<&DecodingParams::set_semantics>(),
       .own_syntax = "`count` or `once`",
       .own_default = "`count`",
       .read_by = ReadBy::kOption,
       .text = "With `beam_sampling` a path that several beams hold weighs as often (`count`), or "
               "once: the multiset or the set of 3.3."},
      {.name = "length_penalty",
       .member = Member<&DecodingParams::length_penalty>(),
       .range = {-kMostDouble, kMostDouble},
       .served = {{0, 10}},
       .read_by = ReadBy::kBeams,
       .text = "alpha: hypotheses are ranked by their log-probability divided by length^alpha. "
               "Samples are ranked so when `best_of` is above `n`."},
      {.name = "seed",
       .member = Member<&DecodingParams::seed>(),
       .own_syntax = "an integer of 64 bits",
       .own_default = "a random one",
       .text = "Of every random choice. Sample i of a prompt has seed + i."},
  };
}

std::vector<ParameterRow> LengthRows() {
  std::vector<ParameterRow> rows = {
      {.name = "max_tokens",
       .fields = {"max_tokens", "max_completion_tokens", "max_new_tokens"},
       .member = Member<&DecodingParams::max_tokens>(),
       .range = {1, kMostInt},
       .own_default = "256 (`--default_max_tokens`), or what the context leaves",
       .text = "Tokens of a hypothesis at most, the one that ends it counted."},
      {.name = "min_tokens",
       .member = Member<&DecodingParams::min_tokens>(),
       .range = {0, kMostInt},
       .text = "Before it the tokens that end a hypothesis have probability 0. At most "
               "`max_tokens`."},
      {.name = "stop_ids",
       .fields = {"stop_token_ids"},
       .own_syntax = "a list of at most 64 token ids",
       .own_default = "none beside the model's own, unless `ignore_eos`",
       .text = "Tokens that end a hypothesis."},
  };
  for (ParameterRow& row : rows) row.group = ParameterGroup::kLength;
  return rows;
}

std::vector<ParameterRow> WarpRows() {
  std::vector<ParameterRow> rows = {
      {.name = "temperature",
       .member = Member<&DecodingParams::warp, &WarpParams::temperature>(),
       .range = {.low = kLeastTemperature, .or_zero = true},
       .served = {{.low = kLeastTemperature, .high = 2, .or_zero = true}},
       .text = "Divides the logits. 0 is greedy, with `multinomial` and `beam_search`; `do_sample: "
               "false` says the same."},
      {.name = "top_k",
       .member = Member<&DecodingParams::warp, &WarpParams::top_k>(),
       .range = {0, kMostInt},
       .served = {{-1, kMostInt}},
       .limit = ParameterLimit::kVocabulary,
       .text = "Only the k likeliest tokens of a row are kept. 0 and -1 keep all."},
      {.name = "top_p",
       .member = Member<&DecodingParams::warp, &WarpParams::top_p>(),
       .range = {0, 1},
       .served = {{.low = 0, .high = 1, .open_low = true}},
       .text = "Of the tokens by falling probability those are kept before which the mass is at "
               "most p. 1 keeps all."},
      {.name = "min_p",
       .member = Member<&DecodingParams::warp, &WarpParams::min_p>(),
       .range = {0, 1},
       .text = "Tokens are kept whose probability is at least this share of the likeliest one's. 0 "
               "keeps all."},
      {.name = "logit_bias",
       .own_syntax = "an object of at most 1024 token ids, each with a number in [-100, 100]",
       .own_default = "none",
       .text = "Added to the logits, in nats, before the temperature."},
      {.name = "warp_mode",
       .own_syntax = "`row`, `row_raw`, `joint` or `rowcut`",
       .own_default = "`row`",
       .text = "Where the warp acts on beams: on every row, or on the flat scores of a whole layer "
               "(docs/algorithms.md 1)."},
  };
  for (ParameterRow& row : rows) row.group = ParameterGroup::kWarp;
  return rows;
}

std::vector<ParameterRow> DraftRows() {
  std::vector<ParameterRow> rows = {
      {.name = "method",
       .own_syntax = "`auto` or a name of the table of methods",
       .own_default = "`auto`: the first that serves decoding, warp and duplicates",
       .text = "What verifies the drafts; decoding.md says which to choose. Lossy methods, and a "
               "dynamic width, need `allow_lossy: true` beside it."},
      {.name = "draft_width",
       .member = Member<&DecodingParams::draft_width>(),
       .range = {0, kMostBeams},
       .limit = ParameterLimit::kMaxDraftWidth,
       .zero_word = "auto",
       .read_by = ReadBy::kDrafting,
       .text = "W_S: nodes or draws in a layer of a draft. Methods of one path draft 1."},
      {.name = "draft_depth",
       .member = Member<&DecodingParams::draft_depth>(),
       .range = {0, kMostBeams},
       .limit = ParameterLimit::kMaxDraftDepth,
       .zero_word = "auto",
       .read_by = ReadBy::kDrafting,
       .text = "gamma: layers of a draft."},
      {.name = "draft_tree",
       .own_syntax = "`chain`, `eagle`, or children per level as in `4-2-1`",
       .own_default = "none",
       .read_by = ReadBy::kOption,
       .text = "A static tree instead of width and depth, within their limits."},
      {.name = "draft_support",
       .member = Member<&DecodingParams::draft_support>(),
       .range = {1, kMostInt},
       .served = {{1, 1024}},
       .read_by = ReadBy::kDrafting,
       .text = "K: the entries of a draft distribution that are kept."},
      {.name = "width_threshold",
       .member = Member<&DecodingParams::width_threshold>(),
       .range = {0, 1},
       .served = {{.low = 0, .high = 1, .open_low = true}},
       .own_default = "none: the width is fixed",
       .read_by = ReadBy::kOption,
       .text = "t of 5.3: the width follows what the draft is good for. Lossy."},
      {.name = "min_width",
       .member = Member<&DecodingParams::min_width>(),
       .range = {1, kMostBeams},
       .limit = ParameterLimit::kBeamWidth,
       .read_by = ReadBy::kOption,
       .text = "W_min of 5.3: the least width, where it is dynamic."},
      {.name = "draft_beams",
       .member = Member<&DecodingParams::draft_beams>(),
       .range = {1, kMostBeams},
       .limit = ParameterLimit::kMaxBeamWidth,
       .read_by = ReadBy::kOption,
       .text = "Beams of the draft's search (6.2), or of the target's own (6.1)."},
      {.name = "mjsd_threshold",
       .member = Member<&DecodingParams::mjsd_threshold>(),
       .range = {0, 1},
       .read_by = ReadBy::kOption,
       .text = "tau of 6.2: drafts are kept whose joint likelihood is at least this share of the "
               "draft's own."},
      {.name = "fallback_threshold",
       .member = Member<&DecodingParams::fallback_threshold>(),
       .range = {0, 1},
       .read_by = ReadBy::kOption,
       .text = "tau1 of 6.3: drafting stops where the draft's largest probability is below it."},
      {.name = "rollback_threshold",
       .member = Member<&DecodingParams::rollback_threshold>(),
       .range = {0, kMostDouble},
       .served = {{0, 1000}},
       .read_by = ReadBy::kOption,
       .text = "tau2 of 6.3, nats: drafts are kept up to the first that the target finds less "
               "likely than this."},
      {.name = "joint_tokens",
       .member = Member<&DecodingParams::joint_tokens>(),
       .range = {1, kMostBeams},
       .served = {{1, 16}},
       .read_by = ReadBy::kOption,
       .text = "g of 6.1: tokens that are chosen at once."},
  };
  for (ParameterRow& row : rows) row.object = kSpeculative;
  rows.insert(rows.begin(),
              {.name = "plain",
               .fields = {kSpeculative},
               .member = Member<&DecodingParams::plain>(),
               .own_syntax = "`true`, `false`, `\"auto\"` or an object of the fields below",
               .own_default = "`\"auto\"`",
               .text = "`false` decodes without drafts, `true` and `\"auto\"` draft where it pays, "
                       "an object says how. A field that would have no effect, or that a method "
                       "cannot serve, is refused with both names."});
  for (ParameterRow& row : rows) row.group = ParameterGroup::kDraft;
  return rows;
}

std::vector<ParameterRow> MakeParameters() {
  std::vector<ParameterRow> table;
  for (std::vector<ParameterRow>& rows : std::vector<std::vector<ParameterRow>>{
           DecodingRows(), LengthRows(), WarpRows(), DraftRows()}) {
    std::move(rows.begin(), rows.end(), std::back_inserter(table));
  }
  for (ParameterRow& row : table) {
    if (row.fields.empty()) row.fields = {row.name};
  }
  return table;
}

}  // namespace

absl::Span<const ParameterRow> Parameters() {
  static const auto* rows = new std::vector<ParameterRow>(MakeParameters());
  return *rows;
}

}  // namespace coppice::decoding
