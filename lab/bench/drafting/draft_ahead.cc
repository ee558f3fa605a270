// What a draft node gains that computes rows while the target verifies: layers per pass of the
// target, on the rows of a real pair and a simulated clock.
// bench_draft_ahead --target DIR --draft DIR --prompts FILE [--beams N] [--sequences N]
//   [--tokens N] [--temperature X] [--eos 0|1] [--pass_rows N]
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "decoding/method.h"
#include "lab/bench/drafting/pair_rows.h"
#include "lab/bench/drafting/simulated_drafting.h"
#include "tokenizer/tokenizer.h"

namespace coppice::lab {
namespace {

using Kind = DraftingPolicy::Kind;

constexpr double kPassesOfADraft = 4;  // D is the time of so many passes of the draft model

struct Measured {
  DraftingPolicy policy;
  std::vector<SimulatedRun> runs;  // [sequences]
};

// Layers per pass of the target, without the sequence `left_out`.
double Rate(const Measured& measured, size_t left_out) {
  double layers = 0, time = 0;
  for (size_t s = 0; s < measured.runs.size(); ++s) {
    if (s == left_out) continue;
    layers += measured.runs[s].layers;
    time += measured.runs[s].time;
  }
  return layers / time;
}
double Rate(const Measured& measured) { return Rate(measured, measured.runs.size()); }

// Standard error of the ratio of two rates: jackknife over the sequences.
double RatioError(const Measured& a, const Measured& b) {
  const size_t count = a.runs.size();
  double sum = 0, squares = 0;
  for (size_t s = 0; s < count; ++s) {
    const double ratio = Rate(a, s) / Rate(b, s);
    sum += ratio;
    squares += ratio * ratio;
  }
  return std::sqrt(std::max(0.0, (squares - sum * sum / count) * (count - 1) / count));
}

std::vector<DraftingPolicy> Policies() {
  std::vector<DraftingPolicy> policies;
  const auto add = [&](Kind kind) -> DraftingPolicy& {
    policies.emplace_back().kind = kind;
    return policies.back();
  };
  for (const int width : {2, 4, 8, 16}) {
    for (const int depth : {1, 2, 3, 4, 6, 8, 12}) {
      DraftingPolicy shape;
      shape.width = width;
      shape.depth = depth;
      if (width * depth <= shape.nodes) policies.push_back(shape);
    }
  }
  for (const int width : {4, 8}) {
    for (const int waits : {0, 1, 2, 3, 4, 6, 12}) {
      DraftingPolicy& deeper = add(Kind::kDeeper);
      deeper.width = width;
      deeper.depth = deeper.nodes / width;
      deeper.waits = std::min(waits, deeper.depth);
      deeper.firm = 2;
    }
  }
  for (const Kind kind : {Kind::kWorlds, Kind::kAhead}) {
    for (const double worth : {.3, .5, .7}) add(kind).worth = worth;
  }
  for (const double layers : {0., 2.}) add(Kind::kStream).least_layers = layers;
  return policies;
}

std::vector<SimulatedMachine> Machines(int pass_rows) {
  std::vector<SimulatedMachine> machines;
  for (const double draft : {.2, .5, 1., 2.}) {
    for (const double delay : {0., .1, .5})
      machines.push_back({draft / kPassesOfADraft, delay, pass_rows});
  }
  return machines;
}

using OnMachine = std::vector<Measured>;  // [policies]

const Measured& BestShape(const OnMachine& measured) {
  const Measured* best = nullptr;
  for (const Measured& m : measured) {
    if (m.policy.kind == Kind::kLevels && (best == nullptr || Rate(m) > Rate(*best))) best = &m;
  }
  return *best;
}

// For each other kind, the index of the policy that is best over all machines.
std::map<Kind, size_t> BestPolicies(const std::vector<OnMachine>& measured) {
  std::map<Kind, std::pair<double, size_t>> best;  // sum of log ratios, policy
  for (size_t p = 0; p < measured[0].size(); ++p) {
    double sum = 0;
    for (const OnMachine& on : measured) sum += std::log(Rate(on[p]) / Rate(BestShape(on)));
    const auto [found, is_new] = best.try_emplace(measured[0][p].policy.kind, sum, p);
    if (!is_new && sum > found->second.first) found->second = {sum, p};
  }
  best.erase(Kind::kLevels);
  std::map<Kind, size_t> policies;
  for (const auto& [kind, sum_and_policy] : best) policies[kind] = sum_and_policy.second;
  return policies;
}

// "2.11 layers/round, 7.9 rows/layer"
std::string Amounts(const Measured& measured) {
  double layers = 0, rounds = 0, rows = 0;
  for (const SimulatedRun& run : measured.runs) {
    layers += run.layers;
    rounds += run.rounds;
    rows += run.rows;
  }
  return absl::StrFormat("%.2f layers/round, %.1f rows/layer", layers / rounds, rows / layers);
}

void Print(const std::vector<SimulatedMachine>& machines, const std::vector<OnMachine>& measured) {
  const std::map<Kind, size_t> policies = BestPolicies(measured);
  for (size_t m = 0; m < machines.size(); ++m) {
    const Measured& shape = BestShape(measured[m]);
    absl::PrintF("D/V %.1f, N/V %.1f: %s: %.2f layers/V, %s\n",
                 machines[m].draft_pass * kPassesOfADraft, machines[m].delay, shape.policy.Name(),
                 Rate(shape), Amounts(shape));
    for (const auto& [kind, p] : policies) {
      const Measured& other = measured[m][p];
      absl::PrintF("  %.3f +- %.3f of it: %s: %s\n", Rate(other) / Rate(shape),
                   RatioError(other, shape), other.policy.Name(), Amounts(other));
    }
  }
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  COPPICE_CHECK_MSG(value.ok(), value.status().ToString().c_str());
  return *std::move(value);
}

// The texts in a file of lines of JSON, as tokens.
std::vector<std::vector<TokenId>> ReadPrompts(const std::string& path,
                                              const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> prompts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto prompt = nlohmann::json::parse(line)["prompt"].get<std::string>();
    prompts.push_back(tokenizer.Encode(prompt, /*add_special_tokens=*/true));
  }
  COPPICE_CHECK_MSG(!prompts.empty(), "--prompts: no prompt");
  return prompts;
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"beams", "4"},   {"sequences", "8"},
                                              {"tokens", "64"}, {"temperature", "1"},
                                              {"eos", "1"},     {"pass_rows", "8"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i] + 2] = argv[i + 1];
  const auto number = [&](const char* name) { return std::atoi(flags[name].c_str()); };
  auto rows = Must(ModelPairRows::Load(flags["target"], flags["draft"]));
  auto tokenizer = Must(tokenizer::Tokenizer::Load(flags["target"]));
  const auto prompts = ReadPrompts(flags["prompts"], *tokenizer);
  decoding::DecodingParams params;
  params.beam_width = number("beams");
  params.kind = params.beam_width == 1 ? sampling::DecodingKind::kMultinomial
                                       : sampling::DecodingKind::kBeamSampling;
  params.max_tokens = number("tokens");
  params.sampling.temperature = std::atof(flags["temperature"].c_str());
  if (number("eos") != 0) params.stop_ids = tokenizer->eos_ids();
  params.method = decoding::FindMethod("gumbel_coupling");

  const std::vector<SimulatedMachine> machines = Machines(number("pass_rows"));
  const std::vector<DraftingPolicy> policies = Policies();
  std::vector<OnMachine> measured(machines.size());
  for (OnMachine& on : measured) {
    for (const DraftingPolicy& policy : policies) on.push_back({policy, {}});
  }
  for (int s = 0; s < number("sequences"); ++s) {
    params.seed = s + 1;
    const absl::Status begun = rows->Begin(prompts[s % prompts.size()], params);
    COPPICE_CHECK_MSG(begun.ok(), begun.ToString().c_str());
    const std::vector<TokenId>* output = nullptr;
    for (size_t c = 0; c < machines.size(); ++c) {
      for (Measured& m : measured[c]) {
        m.runs.push_back(SimulateDrafting(params, {}, m.policy, machines[c], rows.get()));
        if (output == nullptr) output = &measured[0][0].runs.back().output;
        COPPICE_CHECK_MSG(m.runs.back().output == *output, "drafts have changed the output");
      }
    }
    absl::FPrintF(stderr, "sequence %d of %d\n", s + 1, number("sequences"));
  }
  Print(machines, measured);
  return 0;
}

}  // namespace
}  // namespace coppice::lab

int main(int argc, char** argv) { return coppice::lab::Main(argc, argv); }
