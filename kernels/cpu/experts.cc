#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/parallel_rows.h"
#include "sampling/deterministic_math.h"

namespace coppice::kernels::cpu {
namespace {

void Multiply(const Weight& weight, const float* x, int64_t rows, float* y, ThreadTeam* team,
              MatMulScratch* scratch) {
  const auto& matrix = static_cast<const CpuMatrix&>(weight);
  MatMulArgs args;
  args.w = &matrix;
  args.x = x;
  args.rows = rows;
  args.y = y;
  args.bias = matrix.bias.empty() ? nullptr : matrix.bias.data();
  MatMul(args, team, scratch);
}

}  // namespace

std::vector<std::vector<ExpertShare>> RouteRows(const float* scores, int64_t rows, int64_t experts,
                                                int chosen, bool normalised) {
  COPPICE_CHECK(chosen > 0 && chosen <= experts);
  std::vector<std::vector<ExpertShare>> routes(experts);
  std::vector<int64_t> order(experts);
  for (int64_t row = 0; row < rows; ++row, scores += experts) {
    std::iota(order.begin(), order.end(), 0);
    const auto before = [scores](int64_t a, int64_t b) {
      return scores[a] > scores[b] || (!(scores[a] < scores[b]) && a < b);
    };
    // Without an order the first experts are taken, with shares that are not numbers.
    const bool ordered = std::all_of(scores, scores + experts, [](float s) { return s == s; });
    if (ordered) std::partial_sort(order.begin(), order.begin() + chosen, order.end(), before);
    const double largest = scores[order[0]];
    double total = 0, of_chosen = 0;
    for (int64_t e = 0; e < experts; ++e) total += sampling::Exp(scores[e] - largest);
    for (int i = 0; i < chosen; ++i) of_chosen += sampling::Exp(scores[order[i]] - largest);
    const double whole = normalised ? of_chosen : total;
    for (int i = 0; i < chosen; ++i) {
      const int64_t expert = order[i];
      const double share = ordered ? sampling::Exp(scores[expert] - largest) / whole : NAN;
      routes[expert].push_back({row, static_cast<float>(share)});
    }
  }
  return routes;
}

void MixExperts(const Experts& experts, const float* x, int64_t rows, float* out, ThreadTeam* team,
                MatMulScratch* products, ExpertScratch* scratch) {
  const auto count = static_cast<int64_t>(experts.gate_up.size());
  scratch->scores.resize(rows * count);
  Multiply(*experts.router, x, rows, scratch->scores.data(), team, products);
  const auto routes =
      RouteRows(scratch->scores.data(), rows, count, experts.chosen, experts.normalised);
  std::fill_n(out, rows * experts.down[0]->rows, 0.0f);
  for (int64_t e = 0; e < count; ++e) {
    const std::vector<ExpertShare>& taken = routes[e];
    if (taken.empty()) continue;
    const Weight &gate_up = *experts.gate_up[e], &down = *experts.down[e];
    const int64_t d = gate_up.columns, f = down.columns, n = static_cast<int64_t>(taken.size());
    scratch->in.resize(n * d);
    scratch->gate_up.resize(n * 2 * f);
    scratch->activated.resize(n * f);
    scratch->out.resize(n * d);
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(x + taken[i].row * d, d, scratch->in.data() + i * d);
    Multiply(gate_up, scratch->in.data(), n, scratch->gate_up.data(), team, products);
    ForRows(n, 16 * f, team, [&](int64_t begin, int64_t end) {
      Activate(experts.activation, /*gated=*/true, scratch->gate_up.data() + begin * 2 * f,
               end - begin, f, scratch->activated.data() + begin * f);
    });
    Multiply(down, scratch->activated.data(), n, scratch->out.data(), team, products);
    ForRows(n, 2 * d, team, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        AddScaled(out + taken[i].row * d, scratch->out.data() + i * d, taken[i].share, d);
    });
  }
}

}  // namespace coppice::kernels::cpu
