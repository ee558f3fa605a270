#include "kernels/cuda/runtime/list_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace coppice::kernels::cuda {
namespace {

constexpr int kNoisySpare = 3;              // tokens beyond those that a noisy list is to hold
constexpr double kLeastTemperature = 1e-6;  // for noisy lists: below it, f32 keys say little
constexpr double kLargestTemperature = 1e6;
constexpr size_t kSmallCopy = size_t{256} << 10;  // bytes: takes as long as a few launches

// One token more than the list may hold bounds all that are left out.
int64_t Wanted(const RowNeed& need) {
  if (need.form == RowNeed::Form::kTop) return int64_t{sampling::ListCapacity(need)} + 1;
  return int64_t{need.count} + kNoisySpare + 1;
}

// The same for the list of the largest logits. The tokens that a kRaw need asks for come as biased
// ones.
int64_t WantedRaw(const RowNeed& need) {
  const int asked_for = need.form == RowNeed::Form::kRaw ? need.bias_end - need.bias_begin : 0;
  return sampling::RawCapacity(need) - asked_for + 1;
}

bool CanList(const RowNeed& need, int64_t vocab) {
  if (sampling::IsWhole(need, vocab) || std::max(Wanted(need), WantedRaw(need)) > kMostWanted)
    return false;
  return need.form != RowNeed::Form::kGumbel ||
         (need.temperature >= kLeastTemperature && need.temperature <= kLargestTemperature);
}

class Planner {
 public:
  Planner(const LogitRows& rows, ListPlan* out) : pieces_(PiecesOf(rows)), out_(out) {}

  void Add(const RowNeed& need, int32_t row) {
    ListPlan::OfNeed& of = out_->needs[row];
    of.first_list = static_cast<int32_t>(out_->lists.size());
    if (need.form == RowNeed::Form::kTop) AddList(need, row, /*slot=*/0);
    for (uint32_t slots = need.form == RowNeed::Form::kGumbel ? need.slots : 0; slots != 0;
         slots &= slots - 1) {
      AddList(need, row, static_cast<uint32_t>(__builtin_ctz(slots)));
    }
    if (need.raw_top > 0) AddRawList(need, row);
    of.lists = static_cast<int32_t>(out_->lists.size()) - of.first_list;
    if (need.sums) {
      of.sums = static_cast<int32_t>(out_->sums.size());
      out_->sums.push_back({row, need.bias_begin, need.bias_end, 0, need.temperature});
    }
    if (need.raw_sums) {
      of.raw_sums = static_cast<int32_t>(out_->sums.size());
      out_->sums.push_back({row, 0, 0, 0, /*temperature=*/1});
    }
  }

 private:
  void AddList(const RowNeed& need, int32_t row, uint32_t slot) {
    ListTask task;
    task.want = static_cast<int32_t>(Wanted(need));
    task.noisy = need.form == RowNeed::Form::kGumbel ? 1 : 0;
    task.bias_begin = need.bias_begin;
    task.bias_end = need.bias_end;
    task.inverse_temperature = static_cast<float>(1 / need.temperature);
    task.seed = need.seed;
    task.path_hash = need.path_hash;
    task.slot = slot;
    Place(row, &task);
  }

  // By the logits themselves: no token has a bias. The requested tokens of kRaw are left out of the
  // list as biased ones are, and their logits are copied.
  void AddRawList(const RowNeed& need, int32_t row) {
    ListTask task;
    task.want = static_cast<int32_t>(WantedRaw(need));
    if (need.form == RowNeed::Form::kRaw) {
      task.bias_begin = need.bias_begin;
      task.bias_end = need.bias_end;
    }
    Place(row, &task);
  }

  void Place(int32_t row, ListTask* task) {
    task->row = row;
    task->first_of_row =
        out_->needs[row].first_list == static_cast<int32_t>(out_->lists.size()) ? 1 : 0;
    task->record = static_cast<int32_t>(out_->record_words);
    task->entries = static_cast<int64_t>(out_->entries);
    out_->record_words += kHeaderWords + 2 * task->want;
    if (task->first_of_row != 0) out_->record_words += task->bias_end - task->bias_begin;
    out_->entries += static_cast<size_t>(pieces_) * task->want;
    out_->lists.push_back(*task);
  }

  const int32_t pieces_;
  ListPlan* const out_;
};

template <class T>
T WordAs(const uint32_t* words) {
  T value;
  std::memcpy(static_cast<void*>(&value), words, sizeof value);
  return value;
}

using Candidate = std::pair<TokenId, float>;  // a token and its logit

TokenList ListOf(std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.first < b.first; });
  TokenList list;
  for (const auto& [token, logit] : candidates) {
    // The second of two bias entries of one token.
    if (!list.tokens.empty() && list.tokens.back() == token) continue;
    list.tokens.push_back(token);
    list.logits.push_back(logit);
  }
  return list;
}

// No token that the list leaves out has a larger key.
double BoundOf(double temperature, const ListTask& task, const ListHeader& header) {
  if (header.count < task.want) return -std::numeric_limits<double>::infinity();
  const double key = header.least_key;
  if (task.noisy != 0) return key + NoisyKeyError(key);
  return temperature == 1 ? key : key / temperature;  // as TemperRow divides
}

}  // namespace

double NoisyKeyError(double key) { return (std::abs(key) + 64) * 0x1p-21; }

ListPlan MakeListPlan(const StepPlan& plan, const LogitRows& rows, bool always) {
  ListPlan lists;
  lists.needs.resize(plan.needs.size());
  size_t bytes = 0;
  for (const RowNeed& need : plan.needs) {
    if (CanList(need, rows.vocab)) bytes += static_cast<size_t>(rows.columns) * sizeof(float);
  }
  if (bytes == 0 || (bytes <= kSmallCopy && !always)) return lists;
  Planner planner(rows, &lists);
  for (size_t i = 0; i < plan.needs.size(); ++i) {
    if (CanList(plan.needs[i], rows.vocab)) planner.Add(plan.needs[i], static_cast<int32_t>(i));
  }
  for (const auto& [token, bias] : plan.bias) lists.bias.push_back({token, 0, bias});
  return lists;
}

sampling::FoundRow ReadFound(const StepPlan& plan, const ListPlan& lists, int need_index,
                             const LogitRows& rows, const uint32_t* records,
                             const ChunkSums* sums) {
  const RowNeed& need = plan.needs[need_index];
  const ListPlan::OfNeed& of = lists.needs[need_index];
  sampling::FoundRow found;
  if (of.sums >= 0) found.sums = sums + of.sums;
  if (of.raw_sums >= 0) found.raw_sums = sums + of.raw_sums;
  std::vector<Candidate> biased;
  for (int l = 0; l < of.lists; ++l) {
    const ListTask& task = lists.lists[of.first_list + l];
    const uint32_t* words = records + task.record;
    const auto header = WordAs<ListHeader>(words);
    words += kHeaderWords;
    if (task.first_of_row != 0) {
      found.bad_token = header.bad_token;
      found.bad_logit = header.bad_logit;
      for (int i = need.bias_begin; i < need.bias_end; ++i) {
        const TokenId token = plan.bias[i].first;
        const float logit = WordAs<float>(words++);
        if (token < rows.first_token || token >= rows.first_token + rows.columns) continue;
        biased.emplace_back(token, logit);
      }
    }
    std::vector<Candidate> candidates = biased;
    for (int i = 0; i < header.count; ++i) {
      candidates.emplace_back(WordAs<TokenId>(words + 2 * i), WordAs<float>(words + 2 * i + 1));
    }
    const bool raw = need.raw_top > 0 && l + 1 == of.lists;
    found.lists.push_back(
        {ListOf(std::move(candidates)), BoundOf(raw ? 1 : need.temperature, task, header)});
  }
  return found;
}

}  // namespace coppice::kernels::cuda
