#include "draft_node/read_row.h"

#include "decoding/drafter.h"
#include "sampling/logit_check.h"

namespace coppice::draft_node {

ReadRow Read(absl::Span<const float> logits, const decoding::DecodingParams& params,
             const sampling::RowPath& path) {
  ReadRow read;
  read.bad_token = sampling::FirstBadLogit(logits);
  if (read.bad_token < 0) {
    read.row = decoding::DraftRow(logits, params, path);
  } else {
    read.bad_logit = logits[read.bad_token];
  }
  return read;
}

ReadRow Read(const kernels::StepRows& rows, int need, const decoding::DecodingParams& params,
             const sampling::RowPath& path) {
  const CandidateRow* const listed = rows.Listed(need);
  if (listed == nullptr) return Read(rows.Whole(need), params, path);
  ReadRow read{{}, listed->bad_token, listed->bad_logit};
  if (read.bad_token < 0) read.row = decoding::DraftRow(*listed, params, path);
  return read;
}

}  // namespace coppice::draft_node
