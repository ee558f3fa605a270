#include "sampling/target_row.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sampling/warp.h"
#include "sampling/warped_row.h"

namespace coppice::sampling {

namespace {

using Bias = std::vector<std::pair<TokenId, double>>;

// One entry for a token, the sum of its entries.
void AddUp(Bias* bias) {
  std::stable_sort(bias->begin(), bias->end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t kept = 0;
  for (size_t i = 0; i < bias->size(); ++i) {
    if (kept > 0 && (*bias)[kept - 1].first == (*bias)[i].first) {
      (*bias)[kept - 1].second += (*bias)[i].second;
    } else {
      (*bias)[kept++] = (*bias)[i];
    }
  }
  bias->resize(kept);
}

}  // namespace

WarpParams WithoutStops(const RowParams& params) {
  WarpParams warp = params.warp;
  for (TokenId stop : params.stop_ids) {
    warp.logit_bias.emplace_back(stop, -std::numeric_limits<double>::infinity());
  }
  return warp;
}

WarpParams WarpAt(const RowParams& params, const RowPath& path) {
  WarpParams warp = path.length < params.min_tokens ? WithoutStops(params) : params.warp;
  Penalise(params.prompt_ids == nullptr ? absl::Span<const TokenId>() : *params.prompt_ids, path,
           &warp);
  if (params.format != nullptr) warp.allowed = params.format->Allowed(path.format_state);
  return warp;
}

void Penalise(absl::Span<const TokenId> prompt, const RowPath& path, WarpParams* warp) {
  if (!warp->penalises()) return;
  COPPICE_CHECK_MSG(static_cast<int>(path.tokens.size()) == path.length,
                    "penalties need the tokens of the path");
  std::vector<TokenId> tokens = path.tokens;
  std::sort(tokens.begin(), tokens.end());
  std::vector<RepeatedToken> repeated;
  for (size_t i = 0; i < tokens.size();) {
    const size_t begin = i;
    while (i < tokens.size() && tokens[i] == tokens[begin]) ++i;
    const double times = static_cast<double>(i - begin);
    repeated.push_back(
        {tokens[begin], -(warp->frequency_penalty * times + warp->presence_penalty)});
  }
  if (warp->repetition_penalty == 1) {
    for (const RepeatedToken& token : repeated) {
      warp->logit_bias.emplace_back(token.token, token.nats);
    }
    return AddUp(&warp->logit_bias);
  }
  const size_t generated = repeated.size();
  for (TokenId token : prompt) {
    if (!std::binary_search(tokens.begin(), tokens.end(), token)) repeated.push_back({token, 0});
  }
  std::inplace_merge(
      repeated.begin(), repeated.begin() + generated, repeated.end(),
      [](const RepeatedToken& a, const RepeatedToken& b) { return a.token < b.token; });
  warp->repeated = std::move(repeated);
}

WarpParams Uncut(WarpParams warp) {
  warp = WithoutCuts(std::move(warp));
  warp.temperature = 1;
  return warp;
}

TargetRow ReadTargetRow(RowSource* rows, int row, const RowParams& params, const RowPath& path) {
  WarpedRow warped(params);
  warped.Read(rows, row, path);
  return warped.Materialise();
}

}  // namespace coppice::sampling
