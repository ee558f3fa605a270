// A second implementation of the non-speculative algorithms of docs/algorithms.md 3.5, 5.6, 5.7,
// 5.8 and 8, written directly from the specification. The decoders must give the same tokens. It
// takes rows of any model, does not prune, and uses std::log and std::exp.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "decoding/method.h"
#include "decoding/params.h"
#include "lab/exact/flat_sampling.h"
#include "lab/exact/function_rows.h"
#include "lab/exact/hash_lm.h"
#include "sampling/logits_processing.h"
#include "sampling/rng.h"
#include "tests/testing/toy_text.h"

namespace coppice::decoding {

struct ReferenceBeam {
  std::vector<TokenId> path;
  double log_score = 0;
  bool finished = false;
};

class ReferenceDecoder {
 public:
  ReferenceDecoder(const DecodingParams& params, const test::HashLm& lm)
      : ReferenceDecoder(
            params, [lm](uint64_t hash) { return lm.TargetLogProbs(hash); }, lm.vocab_size) {}
  ReferenceDecoder(const DecodingParams& params, test::LogProbsOf target, int vocab_size)
      : params_(params), target_(std::move(target)), vocab_size_(vocab_size) {}

  // Beam search with a format: what is left out of a row after logits processing, which is not
  // renormalised.
  using LeftOut = std::function<bool(absl::Span<const TokenId> path, TokenId token)>;
  void LeaveOut(LeftOut left_out) { left_out_ = std::move(left_out); }
  // A format in which every path of so many tokens is complete.
  void EndAt(size_t length) { end_at_ = length; }

  // The pool, best first.
  std::vector<ReferenceBeam> Run() {
    std::vector<ReferenceBeam> active = {{}};
    if (params_.kind == sampling::DecodingKind::kMultinomial ||
        params_.kind == sampling::DecodingKind::kBeamSampling) {
      active.assign(params_.beam_width, {});
    }
    for (layers = 1;; ++layers) {
      std::vector<ReferenceBeam> outputs = Layer(active);
      active.clear();
      for (const ReferenceBeam& output : outputs) {
        if (output.finished) {
          Insert(output);
        } else {
          active.push_back(output);
        }
      }
      if (active.empty()) break;
      double best = -std::numeric_limits<double>::infinity();
      for (const ReferenceBeam& beam : active) best = std::max(best, beam.log_score);
      if (static_cast<int>(pool_.size()) == params_.beam_width) {
        if (params_.stop_when_full) break;
        if (Score(pool_.back()) >= best / std::pow(params_.max_tokens, params_.length_penalty))
          break;
      }
      if (layers == params_.max_tokens) {
        for (const ReferenceBeam& beam : active) Insert(beam);
        break;
      }
    }
    return pool_;
  }
  // The slots after `count` layers, without stop rules.
  std::vector<ReferenceBeam> RunLayers(int count) const {
    std::vector<ReferenceBeam> active(params_.beam_width);
    for (int i = 0; i < count; ++i) active = Layer(active);
    return active;
  }
  double Score(const ReferenceBeam& beam) const {
    return beam.log_score / std::pow(beam.path.size(), params_.length_penalty);
  }

  int layers = 0;

 private:
  struct Entry {
    double key;
    ReferenceBeam child;
  };

  sampling::Distribution Row(const ReferenceBeam& beam) const {
    sampling::Distribution row = sampling::ProcessRow(
        absl::Span<const double>(target_(sampling::HashPath(beam.path))), Sampling(beam));
    if (left_out_ == nullptr) return row;
    sampling::Distribution kept;
    for (size_t i = 0; i < row.size(); ++i) {
      if (left_out_(beam.path, row.tokens[i])) continue;
      kept.tokens.push_back(row.tokens[i]);
      kept.log_probs.push_back(row.log_probs[i]);
    }
    return kept;
  }

  ReferenceBeam Child(const ReferenceBeam& beam, TokenId token, double log_prob) const {
    ReferenceBeam child = beam;
    child.path.push_back(token);
    child.log_score += params_.sampling.mode == sampling::SamplingScope::kRow
                           ? log_prob
                           : target_(sampling::HashPath(beam.path))[token];
    child.finished = std::find(params_.stop_ids.begin(), params_.stop_ids.end(), token) !=
                         params_.stop_ids.end() ||
                     child.path.size() == end_at_ || test::ToyTextEnds(params_, child.path);
    return child;
  }

  double Noise(sampling::Domain domain, const std::vector<TokenId>& path, int slot,
               int index) const {
    return -std::log(
        -std::log(sampling::Uniform(params_.seed, domain, sampling::HashPath(path), slot, index)));
  }

  std::vector<ReferenceBeam> Layer(const std::vector<ReferenceBeam>& active) const {
    if (params_.method == FindMethod("joint_gumbel_coupling") ||
        sampling::IsJoint(params_.sampling.mode))
      return JointLayer(active);
    if (params_.kind == sampling::DecodingKind::kMultinomial ||
        params_.kind == sampling::DecodingKind::kBeamSampling) {
      return SampledLayer(active);
    }
    return RankedLayer(active);
  }

  // Merges equal paths and counts their copies.
  std::vector<ReferenceBeam> Merge(const std::vector<ReferenceBeam>& active,
                                   std::vector<int>* multiplicity) const {
    std::vector<ReferenceBeam> beams;
    for (const ReferenceBeam& slot : active) {
      size_t b = 0;
      while (b < beams.size() && beams[b].path != slot.path) ++b;
      if (b == beams.size()) {
        beams.push_back(slot);
        multiplicity->push_back(0);
      }
      if (!params_.set_semantics || (*multiplicity)[b] == 0) ++(*multiplicity)[b];
    }
    return beams;
  }

  std::vector<ReferenceBeam> SampledLayer(const std::vector<ReferenceBeam>& active) const {
    std::vector<int> multiplicity;
    const std::vector<ReferenceBeam> beams = Merge(active, &multiplicity);
    std::vector<ReferenceBeam> out;
    const int slots = params_.refill ? params_.beam_width : static_cast<int>(active.size());
    for (int w = 0; w < slots; ++w) {
      size_t best = 0;
      double best_key = -std::numeric_limits<double>::infinity();
      for (size_t b = 0; b < beams.size(); ++b) {
        const double key = beams[b].log_score + std::log(multiplicity[b]) +
                           Noise(sampling::Domain::kParent, beams[b].path, w, 0);
        if (key > best_key) best = b, best_key = key;
      }
      const sampling::Distribution row = Row(beams[best]);
      size_t token = 0;
      double token_key = -std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < row.size(); ++i) {
        const double key =
            row.log_probs[i] + Noise(sampling::Domain::kToken, beams[best].path, w, row.tokens[i]);
        if (key > token_key) token = i, token_key = key;
      }
      out.push_back(Child(beams[best], row.tokens[token], row.log_probs[token]));
    }
    return out;
  }

  sampling::SamplingParams Sampling(const ReferenceBeam& beam) const {
    sampling::SamplingParams sampling = params_.sampling;
    if (static_cast<int>(beam.path.size()) < params_.min_tokens) {
      for (TokenId stop : params_.stop_ids) {
        sampling.logit_bias.emplace_back(stop, -std::numeric_limits<double>::infinity());
      }
    }
    for (TokenId token = 0; token < vocab_size_; ++token) {
      const auto times = std::count(beam.path.begin(), beam.path.end(), token);
      const bool in_prompt =
          params_.prompt_ids != nullptr &&
          std::count(params_.prompt_ids->begin(), params_.prompt_ids->end(), token);
      const double nats = -(sampling.frequency_penalty * static_cast<double>(times) +
                            (times > 0 ? sampling.presence_penalty : 0));
      if (sampling.repetition_penalty == 1) {
        if (times > 0) sampling.logit_bias.emplace_back(token, nats);
      } else if (times > 0 || in_prompt) {
        sampling.repeated.push_back({token, nats});
      }
    }
    return sampling;
  }

  // p_beam over beam * vocab + token.
  std::vector<double> JointDistribution(const std::vector<ReferenceBeam>& beams,
                                        const std::vector<int>& multiplicity) const {
    if (sampling::IsJoint(params_.sampling.mode)) {
      test::FlatLayer layer{{}, multiplicity, {}};
      for (const ReferenceBeam& beam : beams) {
        layer.log_score.push_back(beam.log_score);
        layer.log_probs.push_back(target_(sampling::HashPath(beam.path)));
      }
      return test::FlatSampling(layer, Sampling(beams[0]));
    }
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (const ReferenceBeam& beam : beams) largest = std::max(largest, beam.log_score);
    std::vector<double> distribution(beams.size() * vocab_size_, 0.0);
    for (size_t b = 0; b < beams.size(); ++b) {
      const sampling::Distribution row = Row(beams[b]);
      const double weight = multiplicity[b] * std::exp(beams[b].log_score - largest);
      for (size_t i = 0; i < row.size(); ++i)
        distribution[b * vocab_size_ + row.tokens[i]] = weight * std::exp(row.log_probs[i]);
      total += weight;
    }
    for (double& mass : distribution) mass /= total;
    return distribution;
  }

  std::vector<ReferenceBeam> JointLayer(const std::vector<ReferenceBeam>& active) const {
    std::vector<int> multiplicity;
    const std::vector<ReferenceBeam> beams = Merge(active, &multiplicity);
    const std::vector<double> distribution = JointDistribution(beams, multiplicity);
    std::vector<ReferenceBeam> children;  // [distribution.size()]
    for (const ReferenceBeam& beam : beams) {
      std::vector<double> log_probs(vocab_size_, 0.0);  // log pt: what ls accumulates in ROW
      const sampling::Distribution row = Row(beam);
      for (size_t i = 0; i < row.size(); ++i) log_probs[row.tokens[i]] = row.log_probs[i];
      for (TokenId token = 0; token < vocab_size_; ++token)
        children.push_back(Child(beam, token, log_probs[token]));
    }
    const auto key = [&](size_t i, int slot) {
      const TokenId token = children[i].path.back();
      return std::log(distribution[i]) +
             Noise(sampling::Domain::kToken, beams[i / vocab_size_].path, slot, token);
    };
    if (params_.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement) {
      std::vector<Entry> entries;
      for (size_t i = 0; i < distribution.size(); ++i) {
        if (distribution[i] > 0) entries.push_back({key(i, 0), children[i]});
      }
      return Walk(std::move(entries));
    }
    std::vector<ReferenceBeam> out;
    const int slots = params_.refill ? params_.beam_width : static_cast<int>(active.size());
    for (int w = 0; w < slots; ++w) {
      size_t best = 0;
      double best_key = -std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < distribution.size(); ++i) {
        if (distribution[i] > 0 && key(i, w) > best_key) best = i, best_key = key(i, w);
      }
      out.push_back(children[best]);
    }
    return out;
  }

  std::vector<ReferenceBeam> RankedLayer(const std::vector<ReferenceBeam>& beams) const {
    std::vector<Entry> entries;
    for (const ReferenceBeam& beam : beams) {
      const sampling::Distribution row = Row(beam);
      std::vector<double> keys;
      for (size_t i = 0; i < row.size(); ++i) keys.push_back(beam.log_score + row.log_probs[i]);
      if (params_.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement) {
        for (size_t i = 0; i < row.size(); ++i)
          keys[i] += Noise(sampling::Domain::kToken, beam.path, 0, row.tokens[i]);
        const double largest = *std::max_element(keys.begin(), keys.end());
        const double maximum = beam.log_score + Noise(sampling::Domain::kParent, beam.path, 0, 0);
        for (double& key : keys) {
          const double t = maximum - key + std::log1p(-std::exp(key - largest));
          key = key == largest ? maximum
                               : maximum - std::max(0.0, t) - std::log1p(std::exp(-std::abs(t)));
        }
      }
      for (size_t i = 0; i < row.size(); ++i) {
        entries.push_back({keys[i], Child(beam, row.tokens[i], row.log_probs[i])});
      }
    }
    return Walk(std::move(entries));
  }

  // docs/algorithms.md 8: in rank order, takes ends with a rank below W, and W other entries.
  std::vector<ReferenceBeam> Walk(std::vector<Entry> entries) const {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.key > b.key; });
    std::vector<ReferenceBeam> out;
    int alive = 0;
    for (int rank = 0; rank < static_cast<int>(entries.size()) && alive < params_.beam_width;
         ++rank) {
      const ReferenceBeam& child = entries[rank].child;
      if (child.finished && rank >= params_.beam_width) continue;
      out.push_back(child);
      alive += child.finished ? 0 : 1;
    }
    return out;
  }

  void Insert(const ReferenceBeam& beam) {
    for (const ReferenceBeam& other : pool_) {
      if (other.path == beam.path) return;
    }
    pool_.push_back(beam);
    std::stable_sort(
        pool_.begin(), pool_.end(),
        [&](const ReferenceBeam& a, const ReferenceBeam& b) { return Score(a) > Score(b); });
    if (static_cast<int>(pool_.size()) > params_.beam_width) pool_.pop_back();
  }

  DecodingParams params_;
  test::LogProbsOf target_;
  int vocab_size_;
  LeftOut left_out_;
  size_t end_at_ = 0;  // 0: at no length
  std::vector<ReferenceBeam> pool_;
};

}  // namespace coppice::decoding
