// Sampling parameters of one row and of a layer, Joint Gumbel coupling: docs/algorithms.md 1 and
// 5.6, through the distribution that the decoders read.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/joint/joint_distribution.h"
#include "decoding/path_tree.h"
#include "decoding/seeded/joint_gumbel_coupling.h"
#include "decoding/sequence/layer_beams.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"
#include "sampling/processed_row.h"

namespace coppice::golden {
namespace {

class GivenRows : public sampling::RowSource {
 public:
  explicit GivenRows(std::vector<std::vector<double>> log_probs) : rows_(std::move(log_probs)) {}
  absl::Span<const float> Logits(int) override { return {}; }
  absl::Span<const double> LogProbs(int row) override { return rows_[row]; }

 private:
  std::vector<std::vector<double>> rows_;
};

sampling::SamplingParams ReadJointSampling(const Json& inputs) {
  sampling::SamplingParams sampling = ReadSampling(inputs);
  sampling.mode = inputs.value("mode", "JOINT") == "ROWCUT" ? sampling::SamplingScope::kRowCut
                                                            : sampling::SamplingScope::kJoint;
  return sampling;
}

void CheckJointSampling(const Json& inputs, const Json& expected, CaseCheck* check) {
  decoding::DecodingParams params;
  params.sampling = ReadJointSampling(inputs);
  const std::vector<double> scores = inputs.at("beam_logscore").get<std::vector<double>>();
  const std::vector<int> multiplicity =
      inputs.value("multiplicity", std::vector<int>(scores.size(), 1));
  std::vector<std::vector<double>> log_probs;
  for (const Json& row : inputs.at("rows")) {
    log_probs.emplace_back();
    for (double p : Vec(row)) log_probs.back().push_back(sampling::Log(p));
  }
  const int vocab = static_cast<int>(log_probs[0].size());
  GivenRows source(std::move(log_probs));
  std::vector<std::unique_ptr<sampling::ProcessedRow>> rows;
  std::vector<decoding::WeightedBeam> beams;
  for (size_t b = 0; b < scores.size(); ++b) {
    rows.push_back(std::make_unique<sampling::ProcessedRow>(params));
    rows.back()->Read(&source, static_cast<int>(b), /*path=*/0);
    beams.push_back({b, scores[b], multiplicity[b], nullptr, rows.back().get()});
  }
  decoding::JointDistribution distribution(params.sampling);
  check->NearAll("p_beam_flat", test::FlatMass(distribution.Make(beams), vocab),
                 expected.at("p_beam_flat"));
}

Json Pairs(const std::vector<decoding::Entry>& entries) {
  Json pairs = Json::array();
  for (const decoding::Entry& entry : entries) pairs.push_back({entry.beam, entry.token});
  return pairs;
}

}  // namespace

void RunSampling(const Json& inputs, const Json& expected, CaseCheck* check) {
  if (!inputs.contains("logits")) return CheckJointSampling(inputs, expected, check);
  const std::vector<double> logits = inputs.at("logits").get<std::vector<double>>();
  const sampling::Distribution row = sampling::ProcessRow(logits, ReadSampling(inputs));
  std::vector<double> probabilities(logits.size(), 0.0);
  for (size_t i = 0; i < row.size(); ++i)
    probabilities[row.tokens[i]] = sampling::Exp(row.log_probs[i]);
  check->NearAll("prob", probabilities, expected.at("prob"));
}

void RunJointGumbelCoupling(const Json& inputs, const Json& expected, CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.beam_width = inputs.at("W").get<int>();
  params.seed = Hex(inputs.at("seed_hex").get<std::string>());
  params.sampling = ReadJointSampling(inputs);
  decoding::PathTree paths;
  std::vector<decoding::Beam> slots;
  std::vector<double> scores;
  std::vector<uint64_t> hashes;
  for (size_t b = 0; b < inputs.at("beams").size(); ++b) {
    decoding::Beam beam;
    for (TokenId token : Path(inputs.at("beams").at(b))) {
      beam.log_score += lm.TargetLogProbs(paths.hash(beam.path))[token];
      beam.path = paths.Extend(beam.path, token);
    }
    scores.push_back(beam.log_score);
    hashes.push_back(paths.hash(beam.path));
    slots.insert(slots.end(), inputs.at("multiplicity").at(b).get<int>(), beam);
  }
  check->NearAll("ls", scores, expected.at("ls"));

  decoding::LayerBeams beams(params);
  beams.Set(slots);
  beams.BeginRound();
  test::HashLmRows rows(lm, hashes, decoding::DraftForest::Empty(static_cast<int>(hashes.size())));
  const decoding::LayerDistribution p = beams.Read(&rows, paths);
  check->NearAll("p_beam", test::FlatMass(p, lm.vocab_size), expected.at("p_beam"));
  check->Equal("iid_slots", Pairs(decoding::DrawSlots(p, params, params.beam_width).entries),
               expected.at("iid_slots"));
  check->Equal("wor_top_W", Pairs(decoding::DrawDistinct(p, params, {}).entries),
               expected.at("wor_top_W"));
}

}  // namespace coppice::golden
