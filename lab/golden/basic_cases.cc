// Random numbers, the test model, final choice: docs/algorithms.md 2, 8; tests/golden/README.md.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "decoding/sequence/hypothesis_pool.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"
#include "sampling/rng.h"

namespace coppice::golden {

void RunRng(const Json& inputs, const Json& expected, CaseCheck* check) {
  if (inputs.contains("ctr_hex")) {
    std::array<uint32_t, 4> counter{};
    for (int i = 0; i < 4; ++i)
      counter[i] = static_cast<uint32_t>(Hex(inputs.at("ctr_hex").at(i).get<std::string>()));
    std::array<uint32_t, 2> key{};
    for (int i = 0; i < 2; ++i)
      key[i] = static_cast<uint32_t>(Hex(inputs.at("key_hex").at(i).get<std::string>()));
    const std::array<uint32_t, 4> out = sampling::Philox(counter, key);
    for (int i = 0; i < 4; ++i) {
      check->Equal("out", out[i], Hex(expected.at("out_hex").at(i).get<std::string>()));
    }
    return;
  }
  const uint64_t seed = Hex(inputs.at("seed_hex").get<std::string>());
  const sampling::Domain domain = static_cast<sampling::Domain>(inputs.at("domain").get<int>());
  const uint64_t hash = sampling::HashPath(Path(inputs.at("path")));
  const uint32_t slot = inputs.at("slot").get<uint32_t>();
  const uint32_t index = inputs.at("index").get<uint32_t>();
  check->Equal("hash", hash, Hex(expected.at("hash_hex").get<std::string>()));
  const double u = sampling::Uniform(seed, domain, hash, slot, index);
  check->Near("u", u, std::strtod(expected.at("u_hex").get<std::string>().c_str(), nullptr), 0.0);
  check->Near("u", u, expected.at("u").get<double>(), 0.0);
  const double gumbel = expected.at("gumbel").get<double>();
  check->Near("gumbel", sampling::Gumbel(seed, domain, hash, slot, index), gumbel,
              1e-14 * std::abs(gumbel));
}

void RunHashLm(const Json& inputs, const Json& expected, CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const uint64_t hash = sampling::HashPath(Path(inputs.at("path")));
  check->Equal("target_weights", lm.TargetWeights(hash), expected.at("target_weights"));
  check->Equal("draft_weights", lm.DraftWeights(hash), expected.at("draft_weights"));
}

void RunFinalSelection(const Json& inputs, const Json& expected, CaseCheck* check) {
  for (const auto& [name, alpha] :
       {std::pair("alpha_0", 0.0), std::pair("alpha_0.6", 0.6), std::pair("alpha_1", 1.0)}) {
    std::vector<double> scores;
    for (const Json& h : inputs.at("hypotheses")) {
      scores.push_back(decoding::NormalisedScore(h.at("logscore").get<double>(),
                                                 h.at("length").get<int>(), alpha));
    }
    check->NearAll(name, scores, expected.at(name).at("scores"));
    check->Equal(name, std::max_element(scores.begin(), scores.end()) - scores.begin(),
                 expected.at(name).at("best_index"));
  }
  std::vector<double> mean;
  for (size_t i = 0; i < inputs.at("hypotheses").size(); ++i) {
    const Json& h = inputs.at("hypotheses").at(i);
    mean.push_back(
        decoding::NormalisedScore(h.at("logscore").get<double>(), h.at("length").get<int>(), 1.0));
    const double want = expected.at("perplexity").at(i).get<double>();
    check->Near("perplexity", sampling::Exp(-mean.back()), want, 1e-12 * want);
  }
  check->Equal("lowest_ppl_index", std::max_element(mean.begin(), mean.end()) - mean.begin(),
               expected.at("lowest_ppl_index"));
}

}  // namespace coppice::golden
