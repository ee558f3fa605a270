#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "decoding/parameter.h"

namespace coppice::decoding {
namespace {

constexpr double kMostDouble = std::numeric_limits<double>::max();
constexpr double kMostInt = std::numeric_limits<int>::max();
constexpr double kMostPenalty = 1000;  // nats, or a factor: far above any in use
constexpr char kSpeculative[] = "speculative";

// Member<&DecodingParams::sampling, &SamplingParams::top_k>() is the scalar at the end of this
// path.
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
       .own_default =
           "`multinomial`, or the one that `use_beam_search`, `do_sample` and the width imply",
       .text = "The distribution of the output: which hypotheses may come out, and how often. A "
               "lossless "
               "method does not change it."},
      {.name = "beam_width",
       .fields = {"beam_width", "num_beams"},
       .member = Member<&DecodingParams::beam_width>(),
       .range = {1, kMostBeams},
       .limit = ParameterLimit::kMaxBeamWidth,
       .own_default = "1 for `multinomial`; with beams `best_of`, else `n` above 1, else 4",
       .text = "W: the number of live beams."},
      {.name = "width_schedule",
       .fields = {"beam_width_schedule"},
       .own_syntax = "a list of 1 to 64 widths; `beam_width` may be such a list, too",
       .own_default = "the same width in every layer",
       .read_by = ReadBy::kBeams,
       .text =
           "W of layer 1, 2, 3, ...; the last one holds for all layers to come: `[512, 128, 64]` "
           "considers many first tokens and then fewer continuations. For `beam_search` and "
           "`beam_sampling_without_replacement` (docs/algorithms.md 8.3)."},
      {.name = "num_beam_groups",
       .member = Member<&DecodingParams::num_beam_groups>(),
       .range = {1, kMostBeams},
       .read_by = ReadBy::kBeams,
       .text = "G: `beam_search` divides its beams into G groups of equal size. In each layer the "
               "groups choose one after the other, and `diversity_penalty` keeps them apart "
               "(docs/algorithms.md 8.2). It must divide the beam width."},
      {.name = "diversity_penalty",
       .member = Member<&DecodingParams::diversity_penalty>(),
       .range = {0, kMostPenalty},
       .read_by = ReadBy::kBeams,
       .text = "Taken from the score of a token, in nats, for each beam of an earlier group that "
               "chose the token in the same layer. Scores of hypotheses keep what was taken. "
               "Above 0 with groups, and only with groups."},
      {.name = "num_hypotheses",
       .fields = {"n", "num_return_sequences"},
       .member = Member<&DecodingParams::num_hypotheses>(),
       .range = {1, kMostBeams},
       .own_syntax = "an integer from 1 to the beam width (without beams to `--max_n`)",
       .own_default = "1",
       .text = "The number of choices. With beams they are the n best hypotheses of one search. "
               "Without beams each is an independent sample."},
      {.name = "stop_when_full",
       .fields = {"early_stopping"},
       .member = Member<&DecodingParams::stop_when_full>(),
       .own_syntax = "`true`, `false` or `\"never\"`",
       .own_default = "`true`",
       .read_by = ReadBy::kBeams,
       .text = "`true` ends a search when W hypotheses have ended. Otherwise it continues until no "
               "live beam can become one of the best."},
      {.name = "refill",
       .member = Member<&DecodingParams::refill>(),
       .read_by = ReadBy::kBeams,
       .text = "Whether `beam_sampling` draws a new beam in place of each one that ended."},
      {.name = "set_semantics",
       .fields = {"beam_duplicates"},
       .member = Member<&DecodingParams::set_semantics>(),
       .own_syntax = "`count` or `once`",
       .own_default = "`count`",
       .read_by = ReadBy::kOption,
       .text =
           "How much a path weighs in `beam_sampling` when several beams hold it: once for each "
           "beam (`count`) or `once`. The multiset and set semantics of 3.3."},
      {.name = "length_penalty",
       .member = Member<&DecodingParams::length_penalty>(),
       .range = {-kMostDouble, kMostDouble},
       .served = {{0, 10}},
       .read_by = ReadBy::kBeams,
       .text = "alpha: hypotheses are ranked by their log-probability divided by length^alpha. "
               "Independent samples are ranked in this way when `best_of` is above `n`."},
      {.name = "min_score",
       .member = Member<&DecodingParams::min_score>(),
       .range = {kEveryScore, 0},
       .served = {{-1e6, 0}},
       .own_default = "none",
       .read_by = ReadBy::kBeams,
       .text = "Hypotheses whose `score` is below it are not returned, so there may be fewer than "
               "`n` choices, or none. The other choices stay the same (docs/algorithms.md 8.4)."},
      {.name = "seed",
       .member = Member<&DecodingParams::seed>(),
       .own_syntax = "a 64-bit integer",
       .own_default = "random",
       .text = "Seed of every random choice. Sample i of a prompt uses seed + i."},
  };
}

std::vector<ParameterRow> LengthRows() {
  std::vector<ParameterRow> rows = {
      {.name = "max_tokens",
       .fields = {"max_tokens", "max_completion_tokens", "max_new_tokens"},
       .member = Member<&DecodingParams::max_tokens>(),
       .range = {1, kMostInt},
       .own_default =
           "256 (`--default_max_tokens`), of a chat 4096 (`--default_chat_max_tokens`), or "
           "the rest of the context if that is less",
       .text =
           "The largest number of tokens of a hypothesis, including the one that ends it. -1 is "
           "the default. 0, with `echo` and without `stream`, only scores the prompt."},
      {.name = "min_tokens",
       .member = Member<&DecodingParams::min_tokens>(),
       .range = {0, kMostInt},
       .text = "The smallest number of tokens of a hypothesis. Before that, tokens that end it "
               "have probability 0. At most `max_tokens`."},
      {.name = "stop_ids",
       .fields = {"stop_token_ids"},
       .own_syntax = "a list of at most 64 token ids",
       .own_default = "none",
       .text =
           "Tokens that end a hypothesis, in addition to the model's own. `ignore_eos` switches "
           "the model's own off."},
      {.name = "stop_strings",
       .fields = {"stop"},
       .own_syntax = "a string or a list of at most 16, each of 1 to 256 bytes",
       .own_default = "none",
       .text = "Strings that end a hypothesis at the token that completes one in its text. They "
               "are looked for in the text of token number `min_tokens` and later. "
               "`skip_special_tokens` says whether that text has special tokens."},
      {.name = "format_spec",
       .fields = {"structured_outputs", "response_format", "guided_regex", "guided_choice",
                  "guided_grammar", "guided_json", "regex", "ebnf", "grammar", "json_schema"},
       .own_syntax = "each field has its own form; all that are given ask for the same format",
       .own_default = "none",
       .text = "The format that the text has when it ends by itself: a regular expression, a "
               "grammar, a choice of texts or a JSON schema (api.md 2.6). Every token that cannot "
               "lead to a text of the format has probability 0."},
  };
  for (ParameterRow& row : rows) row.group = ParameterGroup::kLength;
  return rows;
}

std::vector<ParameterRow> SamplingRows() {
  std::vector<ParameterRow> rows = {
      {.name = "temperature",
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::temperature>(),
       .range = {.low = sampling::kLeastTemperature, .or_zero = true},
       .served = {{.low = sampling::kLeastTemperature, .high = 2, .or_zero = true}},
       .read_by = ReadBy::kSampling,
       .text = "Divides the logits. 0 is greedy and needs `multinomial` or `beam_search`; "
               "`do_sample: false` means the same."},
      {.name = "top_k",
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::top_k>(),
       .range = {0, kMostInt},
       .served = {{-1, kMostInt}},
       .limit = ParameterLimit::kVocabulary,
       .read_by = ReadBy::kSampling,
       .text = "Keeps the k most likely tokens of a row. 0 and -1 keep all."},
      {.name = "top_p",
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::top_p>(),
       .range = {0, 1},
       .served = {{.low = 0, .high = 1, .open_low = true}},
       .read_by = ReadBy::kSampling,
       .text = "Keeps the most likely tokens until their probabilities sum to more than p. The "
               "token that exceeds p is kept. 1 keeps all."},
      {.name = "min_p",
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::min_p>(),
       .range = {0, 1},
       .read_by = ReadBy::kSampling,
       .text = "Keeps the tokens whose probability is at least this share of the largest one. 0 "
               "keeps all."},
      {.name = "logit_bias",
       .own_syntax = "an object of at most 1024 token ids, each with a number in [-100, 100]",
       .own_default = "none",
       .text = "Added to the logits, in nats, before the temperature."},
      {.name = "sampling_scope",
       .own_syntax = "`row`, `row_raw`, `joint` or `rowcut`",
       .own_default = "`row`",
       .read_by = ReadBy::kSampling,
       .text = "Where the sampling parameters act on beams: on every row, or on the scores of a "
               "whole layer "
               "(docs/algorithms.md 1)."},
      {.name = "frequency_penalty",
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::frequency_penalty>(),
       .range = {-kMostPenalty, kMostPenalty},
       .served = {{-2, 2}},
       .read_by = ReadBy::kRows,
       .text = "Taken from the logit of a token, in nats, for each time that the hypothesis has "
               "generated it. Tokens of the prompt do not count."},
      {.name = "presence_penalty",
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::presence_penalty>(),
       .range = {-kMostPenalty, kMostPenalty},
       .served = {{-2, 2}},
       .read_by = ReadBy::kRows,
       .text = "Taken once from the logit of every token that the hypothesis has generated, in "
               "nats. Tokens of the prompt do not count."},
      {.name = "repetition_penalty",
       .fields = {"repetition_penalty", "repeat_penalty"},
       .member = Member<&DecodingParams::sampling, &sampling::SamplingParams::repetition_penalty>(),
       .range = {sampling::kLeastRepetitionPenalty, kMostPenalty},
       .served = {{sampling::kLeastRepetitionPenalty, 2}},
       .read_by = ReadBy::kRows,
       .text = "Divides the logit of every token of the prompt and of the hypothesis if it is "
               "above 0, else multiplies it. Applied after `logit_bias` and before the other "
               "penalties."},
  };
  rows.push_back(
      {.name = "no_repeat_ngram_size",
       .member =
           Member<&DecodingParams::sampling, &sampling::SamplingParams::no_repeat_ngram_size>(),
       .range = {0, kMostBeams},
       .read_by = ReadBy::kRows,
       .text = "n: a token that would repeat n tokens in a row of prompt and hypothesis has "
               "probability 0. 0 switches it off."});
  for (ParameterRow& row : rows) row.group = ParameterGroup::kSampling;
  return rows;
}

std::vector<ParameterRow> DraftRows() {
  std::vector<ParameterRow> rows = {
      {.name = "method",
       .own_syntax = "`auto` or a name of the table of methods",
       .own_default =
           "`auto`: the first that serves `decoding`, sampling parameters and `beam_duplicates`",
       .text = "The method that verifies the drafts; decoding.md says which to choose. Lossy "
               "methods and a dynamic width also need `allow_lossy: true`."},
      {.name = "draft_width",
       .member = Member<&DecodingParams::draft_width>(),
       .range = {0, kMostBeams},
       .limit = ParameterLimit::kMaxDraftWidth,
       .zero_word = "auto",
       .read_by = ReadBy::kDrafting,
       .text = "W_S: nodes or draws in each layer of a draft. `\"auto\"` chooses from measured "
               "costs. Methods that draft a single path use 1."},
      {.name = "draft_depth",
       .member = Member<&DecodingParams::draft_depth>(),
       .range = {0, kMostBeams},
       .limit = ParameterLimit::kMaxDraftDepth,
       .zero_word = "auto",
       .read_by = ReadBy::kDrafting,
       .text = "gamma: layers of a draft. `\"auto\"` chooses from measured costs."},
      {.name = "draft_tree",
       .own_syntax = "`chain`, `eagle`, or children per level as in `4-2-1`",
       .own_default = "none",
       .read_by = ReadBy::kOption,
       .text = "A static tree instead of a width and a depth. Their limits also apply to it."},
      {.name = "draft_top_k",
       .member = Member<&DecodingParams::draft_top_k>(),
       .range = {1, kMostInt},
       .served = {{1, 1024}},
       .read_by = ReadBy::kDrafting,
       .text =
           "K: the number of entries of a draft distribution that are kept, the most likely ones."},
      {.name = "width_threshold",
       .member = Member<&DecodingParams::width_threshold>(),
       .range = {0, 1},
       .served = {{.low = 0, .high = 1, .open_low = true}},
       .own_default = "none: the width is fixed",
       .read_by = ReadBy::kOption,
       .text = "t of 5.3: the width of each layer is the largest that the draft fills with at "
               "least this probability. Lossy."},
      {.name = "min_width",
       .member = Member<&DecodingParams::min_width>(),
       .range = {1, kMostBeams},
       .limit = ParameterLimit::kBeamWidth,
       .read_by = ReadBy::kOption,
       .text = "W_min of 5.3: the smallest width when the width is dynamic."},
      {.name = "draft_beams",
       .member = Member<&DecodingParams::draft_beams>(),
       .range = {1, kMostBeams},
       .limit = ParameterLimit::kMaxBeamWidth,
       .read_by = ReadBy::kOption,
       .text = "Width of the beam search: the draft's with `mjsd` (6.2), the target's with `mjgd` "
               "(6.1)."},
      {.name = "mjsd_threshold",
       .member = Member<&DecodingParams::mjsd_threshold>(),
       .range = {0, 1},
       .read_by = ReadBy::kOption,
       .text = "tau of 6.2: keeps the longest drafted prefix whose probability under the target is "
               "more than this share of its probability under the draft. 1 keeps none."},
      {.name = "fallback_threshold",
       .member = Member<&DecodingParams::fallback_threshold>(),
       .range = {0, 1},
       .read_by = ReadBy::kOption,
       .text = "tau1 of 6.3: drafting stops where the draft's largest probability is below this."},
      {.name = "rollback_threshold",
       .member = Member<&DecodingParams::rollback_threshold>(),
       .range = {0, kMostDouble},
       .served = {{0, 1000}},
       .read_by = ReadBy::kOption,
       .text =
           "tau2 of 6.3: keeps the drafts before the first whose negative log-probability under "
           "the target is above this, in nats."},
      {.name = "joint_tokens",
       .member = Member<&DecodingParams::joint_tokens>(),
       .range = {1, kMostBeams},
       .served = {{1, 16}},
       .read_by = ReadBy::kOption,
       .text = "g of 6.1: the number of tokens that are chosen jointly."},
  };
  for (ParameterRow& row : rows) row.object = kSpeculative;
  rows.insert(rows.begin(),
              {.name = "plain",
               .fields = {kSpeculative},
               .member = Member<&DecodingParams::plain>(),
               .own_syntax = "`true`, `false`, `\"auto\"` or an object of the fields below",
               .own_default = "`\"auto\"`",
               .text = "`false` decodes without drafts. `true` and `\"auto\"` draft where it pays. "
                       "An object says how to draft. A field that would have no effect, or that "
                       "the method cannot serve, is refused; the error names both."});
  for (ParameterRow& row : rows) row.group = ParameterGroup::kDraft;
  return rows;
}

std::vector<ParameterRow> MakeParameters() {
  std::vector<ParameterRow> table;
  for (std::vector<ParameterRow>& rows : std::vector<std::vector<ParameterRow>>{
           DecodingRows(), LengthRows(), SamplingRows(), DraftRows()}) {
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
