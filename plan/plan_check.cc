#include "plan/plan_check.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace coppice {
namespace {

constexpr int kMostListed = 1 << 28;  // entries of a candidate list: far above any vocabulary
constexpr double kMostNats = 1e9;

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("plan: ", field, ": ", what));
}
absl::Status BadEntry(absl::string_view field, int64_t index, absl::string_view what) {
  return Bad(absl::StrCat(field, "[", index, "]"), what);
}

absl::Status CheckLength(absl::string_view field, size_t length, size_t wanted) {
  if (length == wanted) return absl::OkStatus();
  return Bad(field, absl::StrCat(length, " entries, want ", wanted));
}

absl::Status CheckEntries(absl::string_view field, absl::Span<const int32_t> values, int64_t end) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < end) continue;
    return BadEntry(field, i, absl::StrCat(values[i], " is not in [0, ", end, ")"));
  }
  return absl::OkStatus();
}

// offsets [n + 1] must not decrease and must go from 0 to `size`.
absl::Status CheckOffsets(absl::string_view field, absl::Span<const int32_t> offsets, size_t n,
                          size_t size) {
  COPPICE_RETURN_IF_ERROR(CheckLength(field, offsets.size(), n + 1));
  if (offsets.front() != 0) return Bad(field, "does not start with 0");
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return BadEntry(field, i, "falls");
  }
  if (offsets.back() == static_cast<int64_t>(size)) return absl::OkStatus();
  return BadEntry(field, offsets.size() - 1, absl::StrCat(offsets.back(), ", want ", size));
}

absl::Status CheckUnique(absl::string_view field, std::vector<int32_t> slots) {
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice == slots.end()) return absl::OkStatus();
  return Bad(field, absl::StrCat("slot ", *twice, " is written twice"));
}

absl::Status CheckArrays(const StepPlan& plan, const PlanLimits& limits) {
  const size_t rows = plan.token.size();
  const int64_t slots = limits.blocks * kBlockSize;
  if (rows > static_cast<size_t>(limits.max_rows)) {
    return Bad("token", absl::StrCat(rows, " rows, at most ", limits.max_rows, " (max_rows)"));
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("token", plan.token, limits.vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckLength("position", plan.position.size(), rows));
  COPPICE_RETURN_IF_ERROR(CheckEntries("position", plan.position, limits.max_positions));
  if (!plan.rope_position.empty()) {
    COPPICE_RETURN_IF_ERROR(CheckLength("rope_position", plan.rope_position.size(), rows));
    COPPICE_RETURN_IF_ERROR(
        CheckEntries("rope_position", plan.rope_position, limits.max_positions));
  }
  COPPICE_RETURN_IF_ERROR(CheckLength("slot", plan.slot.size(), rows));
  COPPICE_RETURN_IF_ERROR(CheckEntries("slot", plan.slot, slots));
  COPPICE_RETURN_IF_ERROR(CheckOffsets("chain_begin", plan.chain_begin, rows, plan.chain.size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("chain", plan.chain, slots));
  COPPICE_RETURN_IF_ERROR(
      CheckOffsets("table_begin", plan.table_begin, plan.segments.size(), plan.table.size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("table", plan.table, limits.blocks));
  return CheckUnique("slot", plan.slot);
}

absl::Status CheckStates(const StepPlan& plan, const PlanLimits& limits) {
  const size_t columns = limits.state_columns;
  COPPICE_RETURN_IF_ERROR(CheckLength("state", plan.state.size(), columns == 0 ? 0 : plan.rows()));
  if (columns == 0) return CheckLength("states", plan.states.size(), 0);
  const auto given = static_cast<int64_t>(plan.states.size() / columns);
  COPPICE_RETURN_IF_ERROR(CheckLength("states", plan.states.size(), given * columns));
  for (int row = 0; row < plan.rows(); ++row) {
    const int32_t state = plan.state[row];
    if (state >= -1 && state < given && (state >= 0 || plan.chain_length(row) >= 2)) continue;
    return BadEntry("state", row,
                    state == -1 ? "no state, and no slot before the row's own in its chain"
                                : absl::StrCat(state, " is not in [-1, ", given, ")"));
  }
  return absl::OkStatus();
}

// A row with a chain sees its whole prefix. A row without one may see less. The last slot that a
// row sees must be the one that it writes.
absl::Status CheckRow(const StepPlan& plan, int s, int row) {
  const Segment& segment = plan.segments[s];
  const int prefix = plan.prefix_length(row), chain = plan.chain_length(row);
  if (chain > 0 ? prefix != segment.prefix_len : prefix > segment.prefix_len) {
    return BadEntry("position", row,
                    absl::StrCat(plan.position[row], " with ", chain,
                                 " tokens outside of a prefix of ", segment.prefix_len));
  }
  const int32_t last =
      chain > 0 ? plan.chain[plan.chain_begin[row + 1] - 1]
                : plan.table[plan.table_begin[s] + (prefix - 1) / kBlockSize] * kBlockSize +
                      (prefix - 1) % kBlockSize;
  if (plan.slot[row] == last) return absl::OkStatus();
  return BadEntry("slot", row, absl::StrCat(plan.slot[row], ", but its context ends in ", last));
}

absl::Status CheckSegments(const StepPlan& plan) {
  int64_t row = 0;
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    if (segment.first_row != row || segment.rows < 1 || segment.rows > plan.rows() - row) {
      return BadEntry("segments", s,
                      absl::StrCat("rows ", segment.first_row, " + ", segment.rows,
                                   " do not follow row ", row, " of ", plan.rows()));
    }
    const int64_t held = int64_t{plan.table_begin[s + 1]} - plan.table_begin[s];
    if (segment.prefix_len < 0 || segment.prefix_len > held * kBlockSize) {
      return BadEntry(
          "segments", s,
          absl::StrCat("a prefix of ", segment.prefix_len, " tokens in ", held, " blocks"));
    }
    for (; row < segment.first_row + segment.rows; ++row) {
      COPPICE_RETURN_IF_ERROR(CheckRow(plan, static_cast<int>(s), static_cast<int>(row)));
    }
  }
  if (row == plan.rows()) return absl::OkStatus();
  return Bad("segments", absl::StrCat("cover ", row, " of ", plan.rows(), " rows"));
}

bool InNats(double value, double low) { return value >= low && value <= kMostNats; }

absl::Status CheckNeed(const StepPlan& plan, size_t i) {
  const RowNeed& need = plan.needs[i];
  const auto bad = [i](absl::string_view what) { return BadEntry("needs", i, what); };
  if (need.row < 0 || need.row >= plan.rows() || (i > 0 && need.row <= plan.needs[i - 1].row)) {
    return bad(absl::StrCat("row ", need.row, " does not ascend within ", plan.rows(), " rows"));
  }
  if (need.form != RowNeed::Form::kWhole && need.form != RowNeed::Form::kTop &&
      need.form != RowNeed::Form::kGumbel && need.form != RowNeed::Form::kRaw) {
    return bad("unknown form");
  }
  if (need.bias_begin < 0 || need.bias_end < need.bias_begin ||
      need.bias_end > static_cast<int64_t>(plan.bias.size())) {
    return bad("its bias is not a range of the plan's");
  }
  const bool raw = need.form == RowNeed::Form::kRaw;
  if (need.raw_top < (raw ? 1 : 0) || need.raw_top > kMostListed) {
    return bad(absl::StrCat("raw_top ", need.raw_top, " is not in [", raw ? 1 : 0, ", ",
                            kMostListed, "]"));
  }
  if (need.form == RowNeed::Form::kWhole) return absl::OkStatus();
  if (raw) {
    if (need.count == 0 && need.cover == 0 && need.depth == 0) return absl::OkStatus();
    return bad("count, cover and depth are of other forms");
  }
  if (need.count < 1 || need.count > kMostListed) {
    return bad(absl::StrCat("count ", need.count, " is not in [1, ", kMostListed, "]"));
  }
  const bool cover = need.cover >= 0 && need.cover <= 1 && (need.cover == 0 || need.sums);
  if (!(need.temperature > 0 && need.temperature < INFINITY) || !InNats(need.slack, 0) ||
      !InNats(need.depth, 0) || !cover) {
    return bad("temperature, slack, depth or cover is out of range");
  }
  return absl::OkStatus();
}

absl::Status CheckNeeds(const StepPlan& plan, const PlanLimits& limits) {
  for (size_t i = 0; i < plan.bias.size(); ++i) {
    const auto& [token, bias] = plan.bias[i];
    const bool number = bias == bias && bias < INFINITY;
    if (token >= 0 && token < limits.vocab_size && number) continue;
    return BadEntry("bias", i, absl::StrCat("token ", token, ", ", bias, " nats"));
  }
  for (size_t i = 0; i < plan.needs.size(); ++i) COPPICE_RETURN_IF_ERROR(CheckNeed(plan, i));
  return absl::OkStatus();
}

absl::Status CheckCommits(const StepPlan& plan, const PlanLimits& limits) {
  const int64_t slots = (limits.groups > 0 ? limits.pages : limits.blocks) * kBlockSize;
  std::vector<int32_t> sources, destinations;
  for (const KvCopy& copy : plan.commits) {
    sources.push_back(copy.source);
    destinations.push_back(copy.destination);
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("commit source", sources, slots));
  COPPICE_RETURN_IF_ERROR(CheckEntries("commit destination", destinations, slots));
  std::sort(destinations.begin(), destinations.end());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::binary_search(destinations.begin(), destinations.end(), sources[i])) {
      return BadEntry("commit source", i, absl::StrCat(sources[i], " is a destination too"));
    }
  }
  return CheckUnique("commit destination", std::move(destinations));
}

// What the pages make of the rows is checked by PageMap.
absl::Status CheckPages(const StepPlan& plan, const PlanLimits& limits) {
  for (size_t i = 0; i < plan.pages.size(); ++i) {
    const PageChange& change = plan.pages[i];
    if (change.block > 0 && change.block < limits.blocks && change.group >= 0 &&
        change.group < limits.groups && change.page >= 0 && change.page < limits.pages) {
      continue;
    }
    return BadEntry("pages", i,
                    absl::StrCat("block ", change.block, ", group ", change.group, ", page ",
                                 change.page, " of ", limits.blocks, " blocks, ", limits.groups,
                                 " groups, ", limits.pages, " pages"));
  }
  return absl::OkStatus();
}

absl::Status CheckFetch(const StepPlan& plan, const PlanLimits& limits) {
  if (plan.fetch.empty()) return absl::OkStatus();
  if (plan.rows() > 0 || !plan.commits.empty() || !plan.pages.empty())
    return Bad("fetch", "the plan has rows, commits or pages");
  COPPICE_RETURN_IF_ERROR(CheckEntries("fetch", plan.fetch, limits.needs_before));
  for (size_t i = 1; i < plan.fetch.size(); ++i) {
    if (plan.fetch[i] <= plan.fetch[i - 1]) return BadEntry("fetch", i, "does not ascend");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlan(const StepPlan& plan, const PlanLimits& limits) {
  COPPICE_RETURN_IF_ERROR(CheckArrays(plan, limits));
  COPPICE_RETURN_IF_ERROR(CheckSegments(plan));
  COPPICE_RETURN_IF_ERROR(CheckStates(plan, limits));
  COPPICE_RETURN_IF_ERROR(CheckNeeds(plan, limits));
  COPPICE_RETURN_IF_ERROR(CheckCommits(plan, limits));
  COPPICE_RETURN_IF_ERROR(CheckPages(plan, limits));
  return CheckFetch(plan, limits);
}

}  // namespace coppice
