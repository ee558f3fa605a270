#include "lab/bench/drafting/simulated_drafting.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "decoding/beam_decoder.h"
#include "lab/bench/drafting/round_drafter.h"
#include "sampling/row_source.h"

namespace coppice::lab {
namespace {

// The target's rows of a round.
class RoundRows : public sampling::RowSource {
 public:
  RoundRows(const decoding::DraftState& state, const decoding::DraftForest& forest, PairRows* rows)
      : rows_(rows), paths_(NamePaths(state, forest, rows)) {}
  absl::Span<const float> Logits(int row) override { return rows_->Target(paths_[row]); }

 private:
  PairRows* rows_;
  std::vector<uint64_t> paths_;
};

void NameRoots(const decoding::BeamDecoder& decoder, PairRows* rows) {
  const decoding::PathTree& paths = decoder.paths();
  for (const decoding::PathId root : decoder.roots()) {
    std::vector<decoding::PathId> above;
    for (auto path = root; path != decoding::kRootPath; path = paths.parent(path))
      above.push_back(path);
    for (auto path = above.rbegin(); path != above.rend(); ++path)
      rows->Name(paths.hash(*path), paths.hash(paths.parent(*path)), paths.token(*path));
  }
}

}  // namespace

std::string DraftingPolicy::Name() const {
  switch (kind) {
    case Kind::kLevels:
      return absl::StrFormat("levels %dx%d", width, depth);
    case Kind::kDeeper:
      return absl::StrFormat("deeper %dx%d, %d levels wait for %d rows", width, depth, waits, firm);
    case Kind::kWorlds:
      return absl::StrFormat("worlds, a pass is worth %.2f", worth);
    case Kind::kAhead:
      return absl::StrFormat("ahead, a pass is worth %.2f", worth);
    case Kind::kStream:
      return absl::StrFormat("stream, waits for %.1f layers", least_layers);
  }
  return "";
}

SimulatedRun SimulateDrafting(const decoding::DecodingParams& params, const WorldsOptions& worlds,
                              const DraftingPolicy& policy, const SimulatedMachine& machine,
                              PairRows* rows) {
  auto decoder = decoding::MakeBeamDecoder(params);
  COPPICE_CHECK_MSG(decoder.ok(), decoder.status().ToString().c_str());
  const auto drafter = MakeRoundDrafter(params, worlds, policy, machine, rows);
  SimulatedRun run;
  for (bool first = true; !(*decoder)->finished(); first = false) {
    NameRoots(**decoder, rows);
    const decoding::DraftState state = (*decoder)->draft_state();
    const int depth = (*decoder)->max_useful_depth();
    auto forest = decoding::DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    if (!first && depth > 0) forest = drafter->Draft(state, depth, &run.time);
    RoundRows target(state, forest, rows);
    (*decoder)->Advance(forest, &target);
    if (first) continue;
    run.time += 1;
    ++run.rounds;
    run.layers += (*decoder)->layers_committed() - static_cast<int>(state.layers_committed);
  }
  run.rows = drafter->rows();
  run.output = (*decoder)->Result()[0].tokens;
  return run;
}

}  // namespace coppice::lab
