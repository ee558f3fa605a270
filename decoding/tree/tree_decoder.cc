#include "decoding/tree/tree_decoder.h"

#include <vector>

#include "decoding/joint/draft_proposals.h"

namespace coppice::decoding {

void TreeDecoder::DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                               RoundLedger* ledger) {
  const bool fits = CheckChildren(children_, forest).ok();
  const ProposalIndex proposals(forest);
  bool go_on = true;
  for (int layer = 0; go_on; ++layer) {
    const int row = beam().row;
    row_.Read(rows, row, state().RowPathOf(beam().path));
    const LayerDistribution p = RowDistribution(row_, state().paths().hash(beam().path));
    std::vector<TokenId> drafts;
    if (fits) drafts = DraftsBelow(forest, row, layer);
    NodeVerdict verdict;
    if (drafts.empty()) {  // a leaf, or a node whose children need no proposals
      verdict = SampleAndCheck({&p, nullptr, drafts}, choices());
    } else {
      const sampling::Distribution& q = proposals.Find(row)->row;
      ledger->AddOverlap(RowOverlap(p, q));
      verdict = rule_({&p, &q, drafts}, choices());
    }
    ledger->AddMargin(verdict.min_margin);
    go_on = Emit(row_, verdict.token, ledger) && fits && beam().row >= 0;
  }
}

}  // namespace coppice::decoding
