#include "kernels/cpu/attention_schedule.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

namespace coppice::kernels::cpu {
namespace {

// Their states stay in the second level of the cache. Fewer of them read and transpose a shared
// chunk more often.
constexpr int64_t kMaxQueriesPerUnit = 128;
// Time of reading and transposing a chunk, in that of the products of one query with it.
constexpr int64_t kChunkCost = 4;
// What a thread may have more than its share without a cut of a unit, which reads chunks again.
constexpr double kTolerance = 1.0 / 16;

class Scheduler {
 public:
  Scheduler(const AttentionArgs& args, int threads)
      : context_(*args.context), threads_(threads), places_(context_.order.size()) {
    for (size_t i = 0; i < places_.size(); ++i) {
      const int32_t row = context_.order[i];
      const int32_t begin = ContextBegin(context_, row, args.rule.window) / kBlockSize;
      Place& place = places_[i];
      place.chunks = (ContextLength(context_, row) + kBlockSize - 1) / kBlockSize - begin;
      const int32_t in_table = context_.prefix_len[row] / kBlockSize;
      place.shared = std::max(0, std::min(context_.common[i], in_table) - begin);
      chunks_.push_back(chunks_.back() + place.chunks);
      shared_.push_back(shared_.back() + place.shared);
    }
    CutIntoUnits(args);
  }

  AttentionSchedule Schedule() {
    AttentionSchedule schedule;
    double left = 0;
    for (const AttentionUnit& unit : units_) left += Cost(unit);
    for (int thread = 0; thread < threads_; ++thread) {
      schedule.begin.push_back(static_cast<int64_t>(schedule.units.size()));
      const bool last = thread + 1 == threads_;
      const double share = left / (threads_ - thread), slack = share * kTolerance;
      double room = share;
      while (!units_.empty() && (last || room > slack)) {
        AttentionUnit unit = units_.front();
        units_.pop_front();
        if (!last && Cost(unit) > room + slack) DivideHeads(room, &unit);
        if (!last && Cost(unit) > room + slack) {
          AttentionUnit rest;
          if (Cut(room, threads_ - thread, &unit, &rest)) {
            // Both parts read what they share.
            left += Cost(unit) + Cost(rest) - Cost(Joined(unit, rest));
            units_.push_front(rest);
          } else if (Cost(unit) > 2 * room && room < share) {
            units_.push_front(unit);
            break;
          }
        }
        room -= Cost(unit);
        left -= Cost(unit);
        schedule.units.push_back(unit);
      }
    }
    schedule.begin.push_back(static_cast<int64_t>(schedule.units.size()));
    return schedule;
  }

 private:
  // Of one place of AttentionContext::order: chunks of the row's context that it sees, and those of
  // them that the row before reads too.
  struct Place {
    int32_t chunks = 0;
    int32_t shared = 0;
  };

  bool BeginsGroup(size_t i) const {
    return i == 0 || (context_.common[i] == 0 && context_.row_table[context_.order[i]] !=
                                                     context_.row_table[context_.order[i - 1]]);
  }

  // A group of rows that share blocks, or a table, makes as few units of about the same number of
  // rows as hold it. With few rows a unit has all KV heads, else one; the units of a head follow each
  // other.
  void CutIntoUnits(const AttentionArgs& args) {
    const int kv_heads = args.pool->shape.kv_heads;
    const int heads = args.q_heads / kv_heads;
    const int64_t most = std::max<int64_t>(1, kMaxQueriesPerUnit / heads);
    for (size_t begin = 0, end = 0; begin < places_.size(); begin = end) {
      do {
        ++end;
      } while (end < places_.size() && !BeginsGroup(end));
      const auto rows = static_cast<int64_t>(end - begin), parts = (rows + most - 1) / most;
      const int together = rows * args.q_heads <= kMaxQueriesPerUnit ? kv_heads : 1;
      for (int head = 0; head < kv_heads; head += together) {
        for (int64_t part = 0; part < parts; ++part) {
          const auto at = [&](int64_t p) { return static_cast<int64_t>(begin) + rows * p / parts; };
          units_.push_back({at(part), at(part + 1), head, together, head * heads, heads});
        }
      }
    }
  }

  double Cost(const AttentionUnit& unit) const {
    const int64_t chunks = chunks_[unit.end] - chunks_[unit.begin];
    const int64_t of_head = unit.heads * chunks + kChunkCost * (chunks - SharedIn(unit));
    return static_cast<double>(unit.kv_heads * of_head);
  }
  int64_t SharedIn(const AttentionUnit& unit) const {
    return shared_[unit.end] - shared_[unit.begin + 1];
  }

  // Leaves in *unit the KV heads that fit into `room`, at least one. The others are next.
  void DivideHeads(double room, AttentionUnit* unit) {
    if (unit->kv_heads == 1) return;
    AttentionUnit rest = *unit;
    const double fit = room / (Cost(*unit) / unit->kv_heads);
    unit->kv_heads = std::clamp(static_cast<int>(fit), 1, unit->kv_heads - 1);
    rest.kv_head += unit->kv_heads;
    rest.kv_heads -= unit->kv_heads;
    rest.first_head += unit->kv_heads * unit->heads;
    units_.push_front(rest);
  }

  // What a part of the unit may cost, where `threads` threads share the rest and this one has
  // `room`: every part reads `again` again, and that is shared, too.
  double Aim(double room, int threads, double again, const AttentionUnit& unit) const {
    const double parts = std::min<double>(threads, std::ceil(Cost(unit) / room));
    return room + again * (parts - 1) / threads;
  }

  // For a unit of one KV head. Leaves in *unit about as much as fits. False: it is better not cut,
  // or has one row and query head.
  bool Cut(double room, int threads, AttentionUnit* unit, AttentionUnit* rest) const {
    *rest = *unit;
    if (unit->rows() > 1 && unit->rows() >= unit->heads) {
      const auto again = static_cast<double>(kChunkCost * places_[unit->begin + 1].shared);
      const double aim = Aim(room, threads, again, *unit);
      const auto cost_until = [&](int64_t end) {
        AttentionUnit part = *unit;
        part.end = end;
        return Cost(part);
      };
      int64_t end = unit->begin + 1;
      while (end + 1 < unit->end && cost_until(end) + cost_until(end + 1) < 2 * aim) ++end;
      if (cost_until(end) > 2 * aim) return false;
      unit->end = rest->begin = end;
      return true;
    }
    const auto of_head = static_cast<double>(chunks_[unit->end] - chunks_[unit->begin]);
    const double read = Cost(*unit) - unit->heads * of_head;
    const double heads = (Aim(room, threads, read, *unit) - read) / of_head;
    if (unit->heads == 1 || heads < 0.5) return false;
    unit->heads = std::min(static_cast<int>(heads + 0.5), unit->heads - 1);
    rest->first_head += unit->heads;
    rest->heads -= unit->heads;
    return true;
  }
  static AttentionUnit Joined(AttentionUnit unit, const AttentionUnit& rest) {
    unit.end = rest.end;
    if (rest.first_head != unit.first_head) unit.heads += rest.heads;
    return unit;
  }

  const AttentionContext& context_;
  const int threads_;
  std::vector<Place> places_;
  std::vector<int64_t> chunks_ = {0}, shared_ = {0};  // sums over the places before
  std::deque<AttentionUnit> units_;
};

}  // namespace

AttentionSchedule ScheduleAttention(const AttentionArgs& args, int threads) {
  return Scheduler(args, threads).Schedule();
}

}  // namespace coppice::kernels::cpu
