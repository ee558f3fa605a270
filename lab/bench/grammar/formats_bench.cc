// What a format costs, with the vocabulary of COPPICE_BENCH_TOKENIZER (a model's folder; default:
// the demo's): to compile it, to find for the first time what may follow a text, to look that up
// again, and to go on by a token.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "grammar/compile.h"
#include "grammar/token_grammar.h"
#include "tokenizer/tokenizer.h"

namespace coppice::bench {
namespace {

struct Case {
  FormatSpec spec;
  std::string text;  // text that has the format
};

// Argument 0: which.
const Case& CaseOf(const benchmark::State& state) {
  static const std::vector<Case>* const cases = new std::vector<Case>{
      {{FormatSpec::Kind::kRegex, "[0-9]{4}-[0-9]{2}-[0-9]{2}"}, "2026-11-25"},
      {{FormatSpec::Kind::kJsonSchema,
        R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},)"
        R"("tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","tags"]})"},
       R"({"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", "engines", "poetry"]})"},
      {{FormatSpec::Kind::kJsonSchema, R"({"type":"object"})"},
       R"({"a": [1, 2.5, {"b": null}], "text": "It was a dark and stormy night"})"},
  };
  return (*cases)[state.range(0)];
}

struct Loaded {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const grammar::TokenTrie> trie;
};

const Loaded& Vocabulary() {
  static const Loaded* const loaded = [] {
    const char* folder = std::getenv("COPPICE_BENCH_TOKENIZER");
    auto tokenizer =
        tokenizer::Tokenizer::Load(folder == nullptr ? "deploy/demo/wikisql-target" : folder);
    COPPICE_CHECK_MSG(tokenizer.ok(), tokenizer.status().ToString());
    auto vocabulary = std::make_shared<const tokenizer::Vocabulary>(**tokenizer);
    return new Loaded{*std::move(tokenizer), std::make_shared<grammar::TokenTrie>(vocabulary)};
  }();
  return *loaded;
}

std::unique_ptr<grammar::TokenGrammar> Compiled(const Case& format) {
  auto automaton = grammar::CompileFormat(format.spec);
  COPPICE_CHECK_MSG(automaton.ok(), automaton.status().ToString());
  return std::make_unique<grammar::TokenGrammar>(Vocabulary().trie, *std::move(automaton),
                                                 std::vector<TokenId>{0});
}

void Compile(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(grammar::CompileFormat(CaseOf(state).spec));
}

// The sets of all tokens of the text, none of them known: time for one.
void FirstTime(benchmark::State& state) {
  const Case& format = CaseOf(state);
  const auto tokens = Vocabulary().tokenizer->Encode(format.text, false);
  for (auto _ : state) {
    state.PauseTiming();
    auto compiled = Compiled(format);
    state.ResumeTiming();
    OutputFormat::State at = compiled->Start();
    for (const TokenId token : tokens) {
      benchmark::DoNotOptimize(compiled->Allowed(at));
      at = compiled->Next(at, token);
    }
    COPPICE_CHECK(at >= 0);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(tokens.size()));
}

void Again(benchmark::State& state) {
  const Case& format = CaseOf(state);
  const auto compiled = Compiled(format);
  const auto tokens = Vocabulary().tokenizer->Encode(format.text, false);
  for (auto _ : state) {
    OutputFormat::State at = compiled->Start();
    for (const TokenId token : tokens) {
      benchmark::DoNotOptimize(compiled->Allowed(at));
      at = compiled->Next(at, token);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(tokens.size()));
}

BENCHMARK(Compile)->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);
BENCHMARK(FirstTime)->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);
BENCHMARK(Again)->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace coppice::bench
