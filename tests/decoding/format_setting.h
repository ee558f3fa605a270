// Decodes with formats of small hashed models, for the tests of their distributions. The tokens are
// "a", "b" and "ab", and one that ends a hypothesis.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/formatted_model.h"
#include "tests/testing/named_decode.h"

namespace coppice::decoding::format_setting {

inline constexpr TokenId kStop = 3;
inline constexpr int kVocab = 4;
inline constexpr int kNoMost = grammar::Expression::kNoMost;

struct NamedLanguage {
  std::string name;
  grammar::Part whole;
};

// Few ends and many; one token that is allowed, and two; a text that ends by itself.
inline std::vector<NamedLanguage> Languages() {
  using namespace grammar;  // NOLINT
  const Part a = Literal("a"), b = Literal("b");
  return {{"(ab)+", Repeat(Literal("ab"), 1, kNoMost)},
          {"(a|b)+", Repeat(Choice({a, b}), 1, kNoMost)},
          {"b(a|b)*a", Sequence({b, Repeat(Choice({a, b}), 0, kNoMost), a})},
          {"ab|aab|b", Choice({Literal("ab"), Literal("aab"), b})},
          {"a*b?", Sequence({Repeat(a, 0, kNoMost), Optional(b)})}};
}

struct Models {
  test::LogProbsOf target, draft, closed;
  std::shared_ptr<const test::ToyFormat> format;
  std::shared_ptr<test::GrowingBook> book;
};

// Sets the format of *params. closed: the target with the format in its rows. draft_knows: the
// draft node knows the format.
inline Models FormattedModels(const grammar::Part& whole, uint64_t salt, bool draft_knows,
                              DecodingParams* params, int vocab = kVocab) {
  const test::HashLm lm{vocab, salt, /*power=*/3, /*noise=*/salt + 31};
  const test::LogProbsOf target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  Models models;
  models.book = std::make_shared<test::GrowingBook>(vocab);
  models.format = std::make_shared<const test::ToyFormat>(whole, vocab, params->stop_ids);
  params->format = models.format->Make();
  models.target = test::Unformatted(target, models.book);
  models.draft =
      test::DraftedRows([lm](uint64_t hash) { return lm.DraftLogProbs(hash); },
                        draft_knows ? *params : test::WithoutFormat(*params), models.book);
  models.closed = test::Formatted(target, models.format, models.book);
  return models;
}

inline test::NamedSetting Named(const MethodRow& row, sampling::DecodingKind kind,
                                const grammar::Part& whole, bool draft_knows, uint64_t salt = 5) {
  test::NamedSetting setting;
  setting.params.kind = kind;
  setting.params.method = &row;
  setting.params.max_tokens = 3;
  setting.params.stop_ids = {kStop};
  if (kind != sampling::DecodingKind::kMultinomial) setting.params.beam_width = 2;
  setting.params.num_hypotheses = setting.params.beam_width;
  if (row.form == DraftForm::kTree) setting.params.draft_tree = "2-2";
  setting.draft_width = row.form == DraftForm::kPath ? 1 : 3;
  const Models models = FormattedModels(whole, salt, draft_knows, &setting.params);
  setting.target = test::Remembered(models.target);
  setting.draft = test::Remembered(models.draft);
  return setting;
}

// The rows that a decode of this setting has, with the format in them.
inline test::LogProbsOf ClosedRows(const grammar::Part& whole, uint64_t salt = 5) {
  DecodingParams params;
  params.stop_ids = {kStop};
  return test::Remembered(FormattedModels(whole, salt, false, &params).closed);
}

}  // namespace coppice::decoding::format_setting
