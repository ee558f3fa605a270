// Every op of the CUDA backend against that of the CPU backend, given the same values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/rope_table.h"
#include "tests/kernels/cuda/ops_fixture.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

class BackendOpsTest : public OpsFixture {};

INSTANTIATE_TEST_SUITE_P(Types, BackendOpsTest, MatrixTypes(), TypeName);

struct Product {
  int64_t rows, outputs, inputs;
  bool bias = false, accumulate = false, to_f32 = false;
};

std::vector<float> RunProduct(TestBackend* backend, const Product& p, DType dtype) {
  const std::vector<float> weights =
      Rounded(RandomFloats(p.outputs * p.inputs, p.outputs + p.inputs), dtype);
  const MatrixSource source = {weights.data(), DType::kF32, p.outputs, p.inputs, p.inputs};
  const auto w = (*backend)->Pack({source}, backend->StoredAs(dtype),
                                  p.bias ? RandomFloats(p.outputs, 7) : std::vector<float>());
  EXPECT_TRUE(w.ok()) << w.status();
  const Tensor x = backend->Put(RandomFloats(p.rows * p.inputs, p.rows), p.inputs, dtype);
  const DType y_type = p.to_f32 ? DType::kF32 : dtype;
  const Tensor y = p.accumulate
                       ? backend->Put(RandomFloats(p.rows * p.outputs, 3), p.outputs, y_type)
                       : backend->Poisoned(p.rows, p.outputs, y_type);
  RunOps(backend->get(), PlanOfRows(p.rows),
         [&](Ops* ops) { ops->MatMul(**w, x, y, p.accumulate); });
  return backend->Read(y);
}

TEST_P(BackendOpsTest, Products) {
  for (const auto& [outputs, inputs] :
       std::vector<std::pair<int, int>>{{40, 72}, {1, 64}, {33, 77}, {96, 32}, {515, 129}}) {
    for (const int rows : {1, 2, 3, 7, 8, 9, 17, 34, 40, 63, 64, 65, 136}) {
      ExpectSame(
          [&](TestBackend* b) {
            return RunProduct(b, {rows, outputs, inputs}, GetParam());
          },
          absl::StrCat(rows, " rows, ", outputs, " x ", inputs));
    }
  }
}

TEST_P(BackendOpsTest, ProductsThatAddThatHaveABiasAndThatWidenToF32) {
  for (const bool bias : {false, true}) {
    for (const bool accumulate : {false, true}) {
      for (const bool to_f32 : {false, true}) {
        const Product product = {5, 48, 24, bias, accumulate, to_f32};
        ExpectSame([&](TestBackend* b) { return RunProduct(b, product, GetParam()); },
                   absl::StrCat(bias, accumulate, to_f32));
      }
    }
  }
}

// The bits of a row are the same for every number of rows of a bucket, the last one of the tensors
// included.
TEST_P(BackendOpsTest, BitsOfAProductDependOnTheBucketAlone) {
  constexpr int kRoom = 60, kOutputs = 72, kInputs = 200;
  const std::vector<float> weights = RandomFloats(kOutputs * kInputs, 1);
  const std::vector<float> rows = RandomFloats(kRoom * kInputs, 2);
  const auto w =
      PackOne(cuda_->get(), {weights.data(), DType::kF32, kOutputs, kInputs, kInputs}, GetParam());
  const auto run = [&](int count) {
    const Tensor x = cuda_->Put(rows, kInputs, GetParam());
    const Tensor y = cuda_->Poisoned(kRoom, kOutputs, DType::kF32);
    RunOps(cuda_->get(), PlanOfRows(count), [&](Ops* ops) { ops->MatMul(*w, x, y, false); });
    return cuda_->Read(y);
  };
  for (const auto& [least, most] : std::vector<std::pair<int, int>>{{5, 8}, {33, 40}, {49, 60}}) {
    const std::vector<float> whole = run(most);
    for (int count = least; count < most; count += 2) {
      const std::vector<float> part = run(count);
      for (int i = 0; i < count * kOutputs; ++i) ASSERT_EQ(part[i], whole[i]) << count << " " << i;
    }
  }
}

// More rows than one piece of the staging holds, from sources in every type, not aligned.
TEST_P(BackendOpsTest, PackKeepsEveryValue) {
  const int64_t columns = 1021, stride = 1024;
  std::vector<uint8_t> bytes(9000 * stride);  // never a NaN, of whatever type
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(0x30 + i * i % 13);
  const uint8_t* odd = bytes.data() + 1;
  for (const DType from : {DType::kF32, DType::kBF16, DType::kF16}) {
    const int64_t rows = from == DType::kF32 ? 1000 : 2000;
    const std::vector<MatrixSource> stacked = {
        {odd, from, 3, columns, stride},
        {odd + 3 * stride * DTypeSize(from), from, rows, columns, stride}};
    const std::vector<TokenId> tokens = {0, 2, 3, static_cast<TokenId>(rows + 2), 999};
    const auto read = [&](TestBackend* backend) {
      const DType stored = backend->StoredAs(GetParam());
      const auto w = (*backend)->Pack(stacked, stored, {}).value();
      EXPECT_EQ(w->rows, rows + 3);
      EXPECT_EQ(w->dtype, stored);
      const Tensor x = backend->Poisoned(5, columns, DType::kF32);
      StepPlan plan = PlanOfRows(5);
      plan.token = tokens;
      RunOps(backend->get(), plan, [&](Ops* ops) { ops->Embed(*w, 0, 1, x); });
      return Rounded(backend->Read(x), GetParam());
    };
    EXPECT_EQ(read(cpu_.get()), read(cuda_.get())) << DTypeName(from);
  }
}

TEST_P(BackendOpsTest, PackHoldsTheWeightsAndNoMore) {
  const std::vector<float> values(100 * 30);
  const MatrixSource source = {values.data(), DType::kF32, 100, 30, 30};
  const size_t size = DTypeSize(GetParam());
  EXPECT_EQ((*cuda_)->Pack({source}, GetParam(), {}).value()->bytes, 3000 * size);
  EXPECT_EQ((*cuda_)->Pack({source}, GetParam(), RandomFloats(100, 1)).value()->bytes,
            3000 * size + 400);
  EXPECT_EQ((*cuda_)->PackGain(RandomFloats(30, 1)).value()->bytes, 120u);
  EXPECT_EQ((*cuda_)->PackGain(RandomFloats(30, 1), RandomFloats(30, 2)).value()->bytes, 240u);
  EXPECT_EQ((*cuda_)->PackGain(RandomFloats(30, 1), RandomFloats(29, 2)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*cuda_)->PackScatter({3, 9}, 30).value()->bytes, 120u);
}

TEST_P(BackendOpsTest, AbsentTokensAreZerosAndOthersScaled) {
  const std::vector<float> source = Rounded(RandomFloats(20 * 3, 1), GetParam());
  const auto run = [&](TestBackend* backend) {
    const auto w = PackOne(backend->get(), {source.data(), DType::kF32, 20, 3, 3},
                           backend->StoredAs(GetParam()));
    const Tensor x = backend->Poisoned(5, 3, DType::kF32);
    StepPlan plan = PlanOfRows(5);
    plan.token = {99, 100, 119, 120, 118};
    RunOps(backend->get(), plan, [&](Ops* ops) { ops->Embed(*w, 100, 2, x); });
    return backend->Read(x);
  };
  EXPECT_EQ(run(cpu_.get()), run(cuda_.get()));
}

TEST_P(BackendOpsTest, Norms) {
  for (const int64_t n : {1, 33, 64, 768}) {
    for (const int64_t rows : {1, 5, 34}) {
      for (const bool add : {false, true}) {
        ExpectSame(
            [&](TestBackend* backend) {
              const auto gain = (*backend)->PackGain(RandomFloats(n, 1)).value();
              const Tensor x = backend->Put(RandomFloats(rows * n, 2), n, DType::kF32);
              const Tensor addend =
                  add ? backend->Put(RandomFloats(rows * n, 3), n, DType::kF32) : Tensor();
              const Tensor out = backend->Poisoned(rows, n, GetParam());
              RunOps(backend->get(), PlanOfRows(rows), [&](Ops* ops) {
                ops->AddNorm(x, {addend}, {gain.get(), NormKind::kRms, 1e-5f}, out);
              });
              std::vector<float> both = backend->Read(out);
              const std::vector<float> sum = backend->Read(x);
              both.insert(both.end(), sum.begin(), sum.end());
              return both;
            },
            absl::StrCat(rows, " x ", n, add ? " with an addend" : ""));
      }
    }
  }
}

// Of the norms of the sum and of the addend: kinds, with a bias or without, one of them absent.
TEST_P(BackendOpsTest, NormsOfEveryKind) {
  constexpr int64_t kRows = 5, n = 100;
  for (const auto& [norm, of_addend] : {std::pair(1, 0), {2, 0}, {3, 1}, {0, 2}, {0, 0}, {1, 4}}) {
    for (const bool in_place : {false, true}) {
      ExpectSame(
          [&, norm = norm, of_addend = of_addend](TestBackend* backend) {
            const auto gain = (*backend)->PackGain(RandomFloats(n, 1)).value();
            const auto both = (*backend)->PackGain(RandomFloats(n, 2), RandomFloats(n, 3)).value();
            const auto of = [&](int i) {
              if (i == 0) return Norm{};
              const Weight* const values = i % 2 == 1 ? gain.get() : both.get();
              return Norm{values, i > 2 ? NormKind::kLayer : NormKind::kRms, 1e-5f};
            };
            const Tensor x = backend->Put(RandomFloats(kRows * n, 4), n, DType::kF32);
            const Tensor values = backend->Put(RandomFloats(kRows * n, 5), n, DType::kF32);
            const Tensor out = in_place ? x : backend->Poisoned(kRows, n, GetParam());
            RunOps(backend->get(), PlanOfRows(kRows), [&](Ops* ops) {
              ops->AddNorm(x, {values, of(of_addend), 0.5f}, of(norm), out);
            });
            std::vector<float> all = backend->Read(x);
            const std::vector<float> normed = backend->Read(out);
            all.insert(all.end(), normed.begin(), normed.end());
            return all;
          },
          absl::StrCat("norm ", norm, " of an addend of norm ", of_addend,
                       in_place ? ", in place" : ""));
    }
  }
}

// The norms of an embedding and of a state, side by side.
TEST_P(BackendOpsTest, PairsOfNorms) {
  for (const auto& [n, m] : {std::pair(40, 72), {33, 33}, {576, 576}}) {
    ExpectSame(
        [&, n = n, m = m](TestBackend* backend) {
          const auto first = (*backend)->PackGain(RandomFloats(n, 1)).value();
          const auto second = (*backend)->PackGain(RandomFloats(m, 2)).value();
          const Tensor a = backend->Put(RandomFloats(5 * n, 3), n, DType::kF32);
          const Tensor b = backend->Put(RandomFloats(5 * m, 4), m, DType::kF32);
          const Tensor out = backend->Poisoned(5, n + m, GetParam());
          RunOps(backend->get(), PlanOfRows(5), [&](Ops* ops) {
            ops->NormPair(a, {first.get(), NormKind::kRms, 1e-5f}, b,
                          {second.get(), NormKind::kRms, 1e-6f}, out);
          });
          return backend->Read(out);
        },
        absl::StrCat(n, " and ", m));
  }
}

TEST_P(BackendOpsTest, Activations) {
  for (const Activation f :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    for (const int64_t n : {1, 37, 64, 1000}) {
      for (const bool gated : {false, true}) {
        const int64_t width = gated ? 2 * n : n;
        ExpectSame(
            [&](TestBackend* backend) {
              std::vector<float> values = RandomFloats(3 * width, 1);
              for (float& value : values) value *= 8;
              const Tensor in = backend->Put(values, width, GetParam());
              const Tensor out = backend->Poisoned(3, n, GetParam());
              RunOps(backend->get(), PlanOfRows(3), [&](Ops* ops) { ops->Activate(f, in, out); });
              return backend->Read(out);
            },
            absl::StrCat("activation ", static_cast<int>(f), ", ", n, " columns"));
      }
    }
  }
}

// Two layers, which share their activations.
TEST_P(BackendOpsTest, LayersOfExperts) {
  constexpr int64_t d = 40, kSize = 24, kExperts = 6;
  for (const int rows : {1, 5, 40}) {
    ExpectSame(
        [&](TestBackend* backend) {
          const DType stored = backend->StoredAs(GetParam());
          uint64_t seed = 1;
          const auto pack = [&](int64_t outputs, int64_t inputs) {
            const std::vector<float> values =
                Rounded(RandomFloats(outputs * inputs, ++seed), GetParam());
            return PackOne(backend->get(), {values.data(), DType::kF32, outputs, inputs, inputs},
                           stored);
          };
          struct Layer {
            std::vector<std::unique_ptr<Weight>> gate_up, down;
            std::unique_ptr<Weight> router;
          };
          Layer layers[2];
          for (Layer& layer : layers) {
            for (int64_t e = 0; e < kExperts; ++e) {
              layer.gate_up.push_back(pack(2 * kSize, d));
              layer.down.push_back(pack(d, kSize));
            }
            layer.router = pack(kExperts, d);
          }
          const Tensor x = backend->Put(RandomFloats(rows * d, 1), d, GetParam());
          const Tensor first = backend->Poisoned(rows, d, DType::kF32);
          const Tensor second = backend->Poisoned(rows, d, DType::kF32);
          RunOps(backend->get(), PlanOfRows(rows), [&](Ops* ops) {
            ops->MixExperts({layers[0].router.get(), layers[0].gate_up, layers[0].down,
                             Activation::kSilu, 3, true},
                            x, first);
            ops->MixExperts({layers[1].router.get(), layers[1].gate_up, layers[1].down,
                             Activation::kGelu, 2, false},
                            x, second);
          });
          std::vector<float> all = backend->Read(first);
          const std::vector<float> more = backend->Read(second);
          all.insert(all.end(), more.begin(), more.end());
          return all;
        },
        absl::StrCat(rows, " rows"),
        /*tolerances=*/3);  // the CPU keeps in f32 what is rounded here
  }
}

TEST_P(BackendOpsTest, LearnedPositionsAndSoftCaps) {
  constexpr int64_t kRows = 5, n = 36, kPositions = 20;
  const std::vector<float> positions = Rounded(RandomFloats(kPositions * n, 1), GetParam());
  ExpectSame(
      [&](TestBackend* backend) {
        const auto w = PackOne(backend->get(), {positions.data(), DType::kF32, kPositions, n, n},
                               backend->StoredAs(GetParam()));
        const Tensor x = backend->Put(RandomFloats(kRows * n, 2), n, DType::kF32);
        StepPlan plan = PlanOfRows(kRows);
        plan.position = {0, 17, 3, 4, 17};
        RunOps(backend->get(), plan, [&](Ops* ops) {
          ops->AddPositions(*w, 2, x);
          ops->SoftCap(x, 0.75f);
        });
        return backend->Read(x);
      },
      "positions");
}

TEST_P(BackendOpsTest, ScatterRows) {
  for (const int64_t places : {37, 64, 3000}) {
    const auto run = [&](TestBackend* backend) {
      const std::vector<int32_t> ids = {0, 1, 7, 30, static_cast<int32_t>(places) - 1};
      const auto scatter = (*backend)->PackScatter(ids, places).value();
      EXPECT_EQ(scatter->rows, places);
      EXPECT_EQ(scatter->columns, 5);
      const Tensor kept = backend->Put(RandomFloats(3 * 5, 1), 5, DType::kF32);
      const Tensor wide = backend->Poisoned(3, places, DType::kF32);
      RunOps(backend->get(), PlanOfRows(3), [&](Ops* ops) { ops->Scatter(*scatter, kept, wide); });
      return backend->Read(wide);
    };
    EXPECT_EQ(run(cpu_.get()), run(cuda_.get())) << places;
  }
}

// Joined with their product, or in a step of their own: the same bits. In one step beside the CPU.
TEST_P(BackendOpsTest, WhatFollowsAProductIsAsInAStepOfItsOwn) {
  constexpr int kRows = 3, kInputs = 40, kHeads = 4, kKvHeads = 2, kDim = 16;
  constexpr int64_t kWidth = (kHeads + 2 * kKvHeads) * kDim;
  const std::vector<float> weights = RandomFloats(kWidth * kInputs, 1);
  const StepPlan plan = [] {
    StepPlan rows = PlanOfRows(kRows);
    for (int r = 0; r < kRows; ++r) {
      rows.position[r] = r;
      rows.slot[r] = kBlockSize + r;
    }
    rows.chain = {16, 16, 17, 16, 17, 18};  // each row sees those before it
    rows.chain_begin = {0, 1, 3, 6};
    return rows;
  }();
  const auto run = [&](TestBackend* backend, Activation f, bool joined) {
    const DType stored = backend->StoredAs(GetParam());
    const MatrixSource source = {weights.data(), DType::kF32, kWidth, kInputs, kInputs};
    const auto w = (*backend)->Pack({source}, stored, RandomFloats(kWidth, 2)).value();
    const auto pool = (*backend)->MakeKvPool({1, kKvHeads, kDim, 3, stored}).value();
    const auto rope = (*backend)->MakeRope({64, PlainFrequencies(kDim, 1e4)}).value();
    const HeadSteps steps = {.rope = rope.get()};
    const Tensor x = backend->Put(RandomFloats(kRows * kInputs, 3), kInputs, GetParam());
    const Tensor y = backend->Poisoned(kRows, kWidth, GetParam());
    const Tensor gated = backend->Poisoned(kRows, kWidth / 2, GetParam());
    const Tensor out = backend->Poisoned(kRows, kHeads * kDim, GetParam());
    const std::vector<std::function<void(Ops*)>> ops = {
        [&](Ops* ops) { ops->MatMul(*w, x, y, false); },
        [&](Ops* ops) { ops->Activate(f, y, gated); },
        [&](Ops* ops) { ops->MatMul(*w, x, y, false); },
        [&](Ops* ops) { ops->RopeAndStoreKv(0, steps, y, pool.get()); },
        [&](Ops* ops) { ops->Attention(0, {.scale = 0.25f}, y, *pool, out); }};
    if (joined) {
      RunOps(backend->get(), plan, [&](Ops* all) {
        for (const auto& op : ops) op(all);
      });
    } else {
      for (const auto& op : ops) RunOps(backend->get(), plan, op);
    }
    std::vector<float> all = backend->Read(gated);
    const std::vector<float> attended = backend->Read(out);
    all.insert(all.end(), attended.begin(), attended.end());
    return all;
  };
  for (const Activation f : {Activation::kSilu, Activation::kGelu}) {
    ExpectSame([&](TestBackend* backend) { return run(backend, f, /*joined=*/true); }, "joined",
               /*tolerances=*/3);  // the CPU keeps in f32 what is rounded here between the ops
    EXPECT_EQ(run(cuda_.get(), f, true), run(cuda_.get(), f, false));
  }
}

// A product that adds to y, or of another y: what follows it must stay a step of its own.
TEST_P(BackendOpsTest, WhatFollowsAnotherProductIsNotJoinedWithIt) {
  constexpr int kRows = 2, kColumns = 24;
  const std::vector<float> weights = RandomFloats(kColumns * kColumns, 1);
  for (const bool accumulate : {false, true}) {
    ExpectSame(
        [&](TestBackend* backend) {
          const MatrixSource source = {weights.data(), DType::kF32, kColumns, kColumns, kColumns};
          const auto w = PackOne(backend->get(), source, backend->StoredAs(GetParam()));
          const auto put = [&](uint64_t seed) {
            return backend->Put(RandomFloats(kRows * kColumns, seed), kColumns, GetParam());
          };
          const Tensor x = put(2), other = put(3);
          const Tensor y = backend->Put(RandomFloats(kRows * kColumns, 4), kColumns, DType::kF32);
          const Tensor out = backend->Poisoned(kRows, kColumns / 2, GetParam());
          const Tensor out_f32 = backend->Poisoned(kRows, kColumns / 2, DType::kF32);
          RunOps(backend->get(), PlanOfRows(kRows), [&](Ops* ops) {
            ops->MatMul(*w, x, y, accumulate);
            if (accumulate) {
              ops->Activate(Activation::kSilu, y, out_f32);
            } else {
              ops->Activate(Activation::kSilu, other, out);
            }
          });
          std::vector<float> all = backend->Read(accumulate ? out_f32 : out);
          const std::vector<float> sums = backend->Read(y);
          all.insert(all.end(), sums.begin(), sums.end());
          return all;
        },
        accumulate ? "added" : "another");
  }
}

// The op after GatherRows works on the rows with needs alone.
TEST_P(BackendOpsTest, GatheredRows) {
  for (const auto& needs : std::vector<std::vector<int>>{{0}, {4}, {1, 4}, {0, 1, 2, 3, 4}}) {
    StepPlan plan = PlanOfRows(5);
    for (const int row : needs) plan.needs.push_back({.row = row});
    const auto run = [&](TestBackend* backend) {
      const Tensor x = backend->Put(RandomFloats(5 * 6, 1), 6, DType::kF32);
      const Tensor wide = backend->Put(RandomFloats(5 * 20, 2), 20, GetParam());
      const Tensor out = backend->Put(std::vector<float>(5 * 10, -1.0f), 10, GetParam());
      RunOps(backend->get(), plan, [&](Ops* ops) {
        ops->GatherRows({x, wide});
        ops->Activate(Activation::kSilu, wide, out);
      });
      std::vector<float> all;
      for (const Tensor& tensor : {x, wide, out}) {
        std::vector<float> values = backend->Read(tensor);
        if (tensor.data != out.data) values.resize(needs.size() * tensor.columns);
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    ExpectSame(run, absl::StrCat(needs.size(), " needs"));
  }
}

}  // namespace
}  // namespace coppice::kernels
