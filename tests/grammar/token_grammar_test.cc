// The tokens that may follow a text: the trie of a vocabulary, and automata walked along it, against
// a walk of every token byte by byte and against the texts of the language.
#include "grammar/token_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sampling/rng.h"
#include "tests/testing/language.h"

namespace coppice::grammar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Tokens by their texts. Those in `special` are special.
class Texts : public tokenizer::Tokenizer {
 public:
  explicit Texts(std::vector<std::string> texts, std::set<TokenId> special = {})
      : texts_(std::move(texts)), special_(std::move(special)) {}
  int vocab_size() const override { return static_cast<int>(texts_.size()); }
  TokenId bos_id() const override { return -1; }
  std::vector<TokenId> eos_ids() const override { return {}; }
  bool IsSpecial(TokenId id) const override { return special_.count(id) > 0; }
  std::vector<TokenId> Encode(absl::string_view, bool) const override { return {}; }
  std::vector<TokenId> EncodeChat(absl::string_view, absl::Span<const size_t>,
                                  bool) const override {
    return {};
  }
  std::vector<size_t> FindSpecial(absl::string_view) const override { return {}; }
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    return skip_special && IsSpecial(id) ? "" : texts_[id];
  }

 private:
  std::vector<std::string> texts_;
  std::set<TokenId> special_;
};

std::shared_ptr<const TokenTrie> Trie(const Texts& texts) {
  return std::make_shared<const TokenTrie>(std::make_shared<const tokenizer::Vocabulary>(texts));
}

Automaton Made(const Part& part) { return *Automaton::Make({{part}, {"root"}}); }

// ---- the trie ----

// Every token with its text, in the order of a walk.
std::vector<std::pair<std::string, TokenId>> Walked(const TokenTrie& trie) {
  std::vector<std::pair<std::string, TokenId>> walked;
  std::string text;
  const auto nodes = trie.nodes();
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    EXPECT_LE(nodes[i].depth, static_cast<int>(text.size()) + 1);
    text.resize(nodes[i].depth - 1);
    text += static_cast<char>(nodes[i].byte);
    // The first node that is not below it is the next one that is not deeper.
    size_t end = i + 1;
    while (end + 1 < nodes.size() && nodes[end].depth > nodes[i].depth) ++end;
    EXPECT_EQ(nodes[i].end, static_cast<int>(end));
    for (int t = nodes[i].first_token; t < nodes[i + 1].first_token; ++t)
      walked.emplace_back(text, trie.tokens()[t]);
  }
  return walked;
}

TEST(TokenTrieTest, HasEveryTokenWithItsText) {
  const auto trie = Trie(Texts({"b", "ab", "", "abc", "ab", "<s>", "\xff\x80", "b", "\x01"}, {5}));
  using Found = std::pair<std::string, TokenId>;
  EXPECT_THAT(Walked(*trie),
              ElementsAre(Found{"\x01", 8}, Found{"ab", 1}, Found{"ab", 4}, Found{"abc", 3},
                          Found{"b", 0}, Found{"b", 7}, Found{"\xff<s>", 5}));
  EXPECT_EQ(trie->deepest(), 4);
  EXPECT_EQ(trie->vocab_size(), 9);
  EXPECT_EQ(trie->Bytes(5), "\xff<s>");
  EXPECT_EQ(trie->Bytes(6), "") << "no UTF-8 text has it";
  EXPECT_EQ(trie->Bytes(3), "abc");
  EXPECT_EQ(trie->Bytes(9), "");
  EXPECT_EQ(trie->Bytes(-1), "");
}

TEST(TokenTrieTest, WithoutTexts) {
  for (const Texts& texts : {Texts({}), Texts({"", "\xff"})}) {
    const auto trie = Trie(texts);
    EXPECT_THAT(trie->tokens(), IsEmpty());
    EXPECT_EQ(trie->nodes().size(), 1u);
    EXPECT_EQ(trie->deepest(), 0);
    const TokenGrammar grammar(trie, Made(Literal("")), {1});
    EXPECT_EQ(grammar.Allowed(grammar.Start())->count, texts.vocab_size() > 1 ? 1 : 0);
  }
}

// Texts of up to five bytes of an alphabet of four, the same text often twice; some are special.
Texts RandomTexts(uint64_t seed, int size) {
  std::vector<std::string> texts = {"a", "b", "c"};
  std::set<TokenId> special;
  for (uint64_t i = 3; i < static_cast<uint64_t>(size); ++i) {
    const uint64_t random = sampling::Finalize(seed * 1000 + i);
    std::string text;
    for (uint64_t at = 0; at < random % 6; ++at)
      text += "abc\xe9"[sampling::Finalize(random + at) % (random % 16 == 0 ? 4 : 3)];
    texts.push_back(text);
    if (random / 64 % 8 == 0) special.insert(static_cast<TokenId>(i));
  }
  return Texts(std::move(texts), std::move(special));
}

TEST(TokenTrieTest, RandomVocabularies) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Texts texts = RandomTexts(seed, 5 + static_cast<int>(seed * 7));
    std::vector<std::pair<std::string, TokenId>> wanted;
    for (TokenId token = 0; token < texts.vocab_size(); ++token) {
      const std::string text =
          (texts.IsSpecial(token) ? "\xff" : "") + texts.TokenBytes(token, false);
      if (!texts.TokenBytes(token, false).empty()) wanted.emplace_back(text, token);
    }
    std::sort(wanted.begin(), wanted.end());  // of bytes as char: all are ASCII but for 0xe9
    auto walked = Walked(*Trie(texts));
    std::sort(walked.begin(), walked.end());
    EXPECT_EQ(walked, wanted);
  }
}

// ---- what is allowed ----

// Ordinary tokens cannot write a special one, and it is allowed by its name only.
TEST(TokenGrammarTest, SpecialTokens) {
  enum { kA, kTool, kPlain, kMark, kEnd, kOther };
  const auto trie = Trie(Texts({"a", "[T]", "[T]", "\xff", "<end>", "[U]"}, {kTool, kEnd, kOther}));
  const TokenGrammar tag(trie, Made(Sequence({SpecialToken("[T]"), Literal("a")})), {kEnd});
  const auto first = tag.Allowed(tag.Start());
  EXPECT_THAT(first->listed, ElementsAre(kTool));
  const auto after = tag.Next(tag.Start(), kTool);
  EXPECT_THAT(tag.Allowed(after)->listed, ElementsAre(kA));
  EXPECT_THAT(tag.Allowed(tag.Next(after, kA))->listed, ElementsAre(kEnd));
  EXPECT_EQ(tag.Next(tag.Start(), kPlain), OutputFormat::kBroken);
  const TokenGrammar plain(trie, Made(Literal("[T]")), {kEnd});
  EXPECT_THAT(plain.Allowed(plain.Start())->listed, ElementsAre(kPlain));
  // A name that is excluded leaves out both.
  const TokenGrammar free(trie, Made(AnyText({"[T]"})), {kEnd});
  EXPECT_THAT(free.Allowed(free.Start())->listed, ElementsAre(kA, kEnd, kOther));
}

// The tokens that may follow, byte by byte and by no trie.
std::vector<TokenId> ByBytes(Automaton* automaton, Automaton::State state, const Texts& texts,
                             const std::vector<TokenId>& ends) {
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < texts.vocab_size(); ++token) {
    bool good;
    if (std::count(ends.begin(), ends.end(), token) > 0) {
      good = automaton->Complete(state);
    } else {
      Automaton::State next = state;
      const std::string text = texts.TokenBytes(token, true);
      for (const char byte : text) next = automaton->Next(next, static_cast<uint8_t>(byte));
      good = !text.empty() && next >= 0;
    }
    if (good) allowed.push_back(token);
  }
  return allowed;
}

void ExpectAllowed(const AllowedTokens& got, const std::vector<TokenId>& wanted, int vocab) {
  EXPECT_EQ(got.listed, wanted);
  EXPECT_EQ(got.count, static_cast<int>(wanted.size()));
  for (TokenId token = -3; token < vocab + 200; ++token)
    EXPECT_EQ(got.Has(token), std::binary_search(wanted.begin(), wanted.end(), token)) << token;
}

// Random walks through random grammars over random vocabularies.
TEST(TokenGrammarTest, AllowsWhatAWalkByBytesAllows) {
  int states = 0, few = 0, complete = 0, dead_ends = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const Texts texts = RandomTexts(seed, 4 + static_cast<int>(seed % 130));
    const int vocab = texts.vocab_size();
    std::vector<TokenId> ends = {static_cast<TokenId>(vocab - 1)};
    if (seed % 3 == 0) ends = {static_cast<TokenId>(seed % vocab), 1000, -1, 2};
    const Part part = test::RandomExpression(seed, 1 + static_cast<int>(seed % 3));
    const test::Language language(part);
    const TokenGrammar grammar(Trie(texts), Made(part), ends);
    Automaton automaton = Made(part);
    for (uint64_t walk = 0; walk < 4; ++walk) {
      OutputFormat::State state = grammar.Start();
      Automaton::State by_bytes = automaton.start();
      std::string text;
      for (uint64_t step = 0; step < 12; ++step) {
        const auto allowed = grammar.Allowed(state);
        const std::vector<TokenId> wanted = ByBytes(&automaton, by_bytes, texts, ends);
        ExpectAllowed(*allowed, wanted, vocab);
        EXPECT_EQ(grammar.Allowed(state), allowed);  // kept
        ++states;
        few += wanted.size() == 1 ? 1 : 0;
        complete += language.Has(text) ? 1 : 0;
        EXPECT_EQ(automaton.Complete(by_bytes), language.Has(text));
        std::vector<TokenId> go_on;
        for (TokenId token = 0; token < vocab; ++token) {
          const bool ends_here = std::count(ends.begin(), ends.end(), token) > 0;
          const std::string bytes = texts.TokenBytes(token, true);
          const OutputFormat::State next = grammar.Next(state, token);
          const bool good = !ends_here && !bytes.empty() && language.Begins(text + bytes);
          EXPECT_EQ(next != OutputFormat::kBroken, good) << text << "|" << bytes;
          if (good) go_on.push_back(token);
        }
        if (go_on.empty()) break;
        const TokenId token =
            go_on[sampling::Finalize(seed * 100 + walk * 20 + step) % go_on.size()];
        text += texts.TokenBytes(token, true);
        state = grammar.Next(state, token);
        for (const char byte : texts.TokenBytes(token, true))
          by_bytes = automaton.Next(by_bytes, static_cast<uint8_t>(byte));
      }
      dead_ends += grammar.Allowed(state)->count == 0 ? 1 : 0;
    }
    EXPECT_FALSE(grammar.worn());
  }
  EXPECT_GT(states, 2000);
  EXPECT_GT(few, 100);
  EXPECT_GT(complete, 500);
  EXPECT_GT(dead_ends, 0);  // its stop id is not of the vocabulary
}

TEST(TokenGrammarTest, RulesThatCallThemselves) {
  // root ::= "(" root ")" | "x"
  const Grammar nested{{Choice({Sequence({Literal("("), Rule(0), Literal(")")}), Literal("x")})},
                       {"root"}};
  const Texts texts({"(", ")", "x", "((", "(x", "))", "x)", "x))", "()", "</s>"}, {9});
  const TokenGrammar grammar(Trie(texts), *Automaton::Make(nested), {9});
  const test::Language language(nested);
  OutputFormat::State state = grammar.Start();
  EXPECT_THAT(grammar.Allowed(state)->listed, ElementsAre(0, 2, 3, 4));
  state = grammar.Next(grammar.Next(state, 3), 4);  // "(((x"
  EXPECT_THAT(grammar.Allowed(state)->listed, ElementsAre(1, 5));
  state = grammar.Next(state, 5);
  EXPECT_THAT(grammar.Allowed(state)->listed, ElementsAre(1));
  state = grammar.Next(state, 1);
  EXPECT_THAT(grammar.Allowed(state)->listed, ElementsAre(9));
  EXPECT_TRUE(language.Has("(((x)))"));
  EXPECT_EQ(grammar.Next(state, 9), OutputFormat::kBroken);
  EXPECT_EQ(grammar.Next(state, 1), OutputFormat::kBroken);
}

TEST(TokenGrammarTest, NothingFollowsABrokenText) {
  const TokenGrammar grammar(Trie(Texts({"a", "b"})), Made(Literal("ab")), {});
  EXPECT_EQ(grammar.Next(grammar.Start(), 1), OutputFormat::kBroken);
  EXPECT_EQ(grammar.Next(OutputFormat::kBroken, 0), OutputFormat::kBroken);
  EXPECT_EQ(grammar.Next(grammar.Start(), 2), OutputFormat::kBroken);
  EXPECT_EQ(grammar.Next(grammar.Start(), -1), OutputFormat::kBroken);
  EXPECT_EQ(grammar.Allowed(OutputFormat::kBroken), nullptr);
}

// More tokens than kMostListed are not listed.
TEST(TokenGrammarTest, ManyTokensAreNotListed) {
  std::vector<std::string> texts;
  for (int i = 0; i < AllowedTokens::kMostListed + 1; ++i) texts.push_back("a" + std::to_string(i));
  texts.push_back("b");
  const Part digits = Repeat(Character({{'0', '9'}}), 1, Expression::kNoMost);
  const TokenGrammar grammar(Trie(Texts(texts)), Made(Sequence({Literal("a"), digits})), {0});
  const auto allowed = grammar.Allowed(grammar.Start());
  EXPECT_EQ(allowed->count, AllowedTokens::kMostListed);  // 0 ends
  EXPECT_EQ(allowed->listed.size(), static_cast<size_t>(AllowedTokens::kMostListed));
  const TokenGrammar all(Trie(Texts(texts)), Made(Sequence({Literal("a"), digits})), {});
  const auto more = all.Allowed(all.Start());
  EXPECT_EQ(more->count, AllowedTokens::kMostListed + 1);
  EXPECT_THAT(more->listed, IsEmpty());
  EXPECT_TRUE(more->Has(AllowedTokens::kMostListed));
  EXPECT_FALSE(more->Has(AllowedTokens::kMostListed + 1));
}

// Sequences share a format. States are numbered as they are reached, but what they allow is the
// same.
TEST(TokenGrammarTest, SeveralThreads) {
  const Texts texts = RandomTexts(5, 60);
  const Part part = test::RandomExpression(12, 4);
  const TokenGrammar shared(Trie(texts), Made(part), {59});
  const auto walk = [&](const TokenGrammar& grammar, uint64_t seed) {
    std::vector<std::vector<TokenId>> seen;
    OutputFormat::State state = grammar.Start();
    for (uint64_t step = 0; step < 200; ++step) {
      const auto allowed = grammar.Allowed(state);
      seen.push_back(allowed->listed);
      if (allowed->count == 0) break;
      state = grammar.Next(
          state, allowed->listed[sampling::Finalize(seed + step) % allowed->listed.size()]);
      if (state == OutputFormat::kBroken) state = grammar.Start();
      EXPECT_FALSE(grammar.CutShort(state));
    }
    return seen;
  };
  constexpr int kThreads = 4;
  std::vector<std::vector<std::vector<TokenId>>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] { seen[t] = walk(shared, 1000 * t); });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    const TokenGrammar alone(Trie(texts), Made(part), {59});
    EXPECT_EQ(seen[t], walk(alone, 1000 * t));
    EXPECT_GT(seen[t].size(), 100u);
  }
}

// 2^20 states: the last 20 bytes count.
TEST(TokenGrammarTest, AFormatThatNeedsTooManyStatesSaysSo) {
  const Part either = Character({{'a', 'b'}});
  const Part part =
      Sequence({Repeat(either, 0, Expression::kNoMost), Literal("a"), Repeat(either, 20, 20)});
  const TokenGrammar grammar(Trie(Texts({"a", "b", "</s>"}, {2})), Made(part), {2});
  OutputFormat::State state = grammar.Start(), last = state;
  int64_t steps = 0;
  for (; state >= 0 && steps < 10'000'000; ++steps) {
    last = state;
    state = grammar.Next(state, static_cast<TokenId>(sampling::Finalize(steps) % 2));
  }
  EXPECT_EQ(state, OutputFormat::kBroken);
  EXPECT_GT(steps, 10'000);
  EXPECT_LT(grammar.bytes(), size_t{256} << 20);
  EXPECT_TRUE(grammar.worn());
  EXPECT_FALSE(grammar.CutShort(last));  // its tokens were not asked for
  EXPECT_LT(grammar.Allowed(last)->count, 2);
  EXPECT_TRUE(grammar.CutShort(last));
  // What is known stays known.
  state = grammar.Start();
  for (int64_t step = 0; step < 1000; ++step) {
    EXPECT_FALSE(grammar.CutShort(state));
    state = grammar.Next(state, static_cast<TokenId>(sampling::Finalize(step) % 2));
    ASSERT_GE(state, 0);
  }
  EXPECT_EQ(grammar.Allowed(OutputFormat::kBroken), nullptr);
}

}  // namespace
}  // namespace coppice::grammar
