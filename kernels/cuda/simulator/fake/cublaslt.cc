// The functions of cuBLASLt that the backend calls, for products of f32, bf16 or f16 with f32 sums.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/cuda/simulator/fake/device_state.h"
#include "kernels/cuda/simulator/fake/lt_product.h"

namespace fake = coppice::kernels::cuda::fake;
using fake::Call;
using fake::DeviceState;
using fake::Place;

struct cublasLtContext {};

namespace coppice::kernels::cuda::fake {
namespace {

// The contents of the other opaque structs.
struct PreferenceFields {
  uint64_t workspace;
  uint32_t reductions;
  uint32_t alignments[4];  // bytes, of a, b, c and d
};
constexpr uint32_t kDefaultAlignment = 256;
constexpr cublasLtMatmulPreferenceAttributes_t kAlignments[] = {
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
// An algorithm: its number, and the only product for which it was proposed.
struct AlgorithmFields {
  uint64_t height, width, depth, workspace;
  cudaDataType a_type, d_type;
  int32_t number;
  uint32_t reduction;
};

template <class Fields, class Opaque>
Fields Read(const Opaque* opaque) {
  static_assert(sizeof(Fields) <= sizeof(Opaque));
  Fields fields;
  std::memcpy(&fields, opaque, sizeof fields);
  return fields;
}

template <class Fields, class Opaque>
void Write(const Fields& fields, Opaque* opaque) {
  static_assert(sizeof(Fields) <= sizeof(Opaque));
  std::memset(opaque, 0, sizeof *opaque);
  std::memcpy(opaque, &fields, sizeof fields);
}

Product Describe(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {Read<ProductFields>(product), Read<LayoutFields>(a), Read<LayoutFields>(b),
          Read<LayoutFields>(c), Read<LayoutFields>(d)};
}

cublasStatus_t Fits(const AlgorithmFields& algorithm, const Product& p) {
  return algorithm.width == p.d.columns && algorithm.height == p.d.rows &&
                 algorithm.depth == p.depth() && algorithm.a_type == p.a.type &&
                 algorithm.d_type == p.d.type
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

uint32_t ReductionOf(const DeviceSettings& settings, int algorithm) {
  const auto listed = static_cast<size_t>(algorithm);
  return listed < settings.reductions.size() ? settings.reductions[listed]
                                             : uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE};
}

bool AlignedAsWished(const Product& p, const PreferenceFields& wishes) {
  const LayoutFields* const layouts[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; ++i) {
    const uint64_t value_bytes = layouts[i]->type == CUDA_R_32F ? 4 : 2;
    if (layouts[i]->leading * value_bytes % wishes.alignments[i] != 0) return false;
  }
  return true;
}

cublasStatus_t CheckPlaces(DeviceState& state, const Product& p) {
  const auto holds = [&](const void* data, const LayoutFields& layout) {
    return state.Holds(Place::kDevice, data, Span(layout)) &&
           reinterpret_cast<uintptr_t>(data) % 256 == 0;
  };
  if (holds(p.a_data, p.a) && holds(p.b_data, p.b) && holds(p.c_data, p.c) && holds(p.d_data, p.d))
    return CUBLAS_STATUS_SUCCESS;
  state.Violate("a product of a matrix beyond its buffer, or not aligned");
  return CUBLAS_STATUS_INVALID_VALUE;
}

// A call that returns the statuses of this library.
template <class Body>
cublasStatus_t LtCall(const char* name, Body&& body, bool always = false) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const cudaError_t error = Call(
      name,
      [&](DeviceState& state) {
        status = body(state);
        return cudaSuccess;
      },
      always);
  if (error == cudaSuccess) return status;
  return error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                            : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace coppice::kernels::cuda::fake

using namespace coppice::kernels::cuda::fake;  // NOLINT: the functions below are of this file

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  return LtCall("cublasLtCreate", [&](DeviceState& state) {
    *handle = new cublasLtContext();
    ++state.live.handles;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  return LtCall(
      "cublasLtDestroy",
      [&](DeviceState& state) {
        delete handle;
        --state.live.handles;
        return CUBLAS_STATUS_SUCCESS;
      },
      true);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t,
                                                              cudaDataType type, uint64_t rows,
                                                              uint64_t columns, int64_t leading) {
  return LtCall("cublasLtMatrixLayoutInit", [&](DeviceState&) {
    Write(LayoutFields{type, rows, columns, leading}, layout);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t product, size_t,
                                                            cublasComputeType_t compute,
                                                            cudaDataType_t scale) {
  return LtCall("cublasLtMatmulDescInit", [&](DeviceState&) {
    Write(ProductFields{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N}, product);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                           cublasLtMatmulDescAttributes_t attribute,
                                                           const void* value, size_t size) {
  return LtCall("cublasLtMatmulDescSetAttribute", [&](DeviceState&) {
    ProductFields fields = Read<ProductFields>(product);
    if (size != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
      std::memcpy(&fields.transpose_a, value, size);
    } else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) {
      std::memcpy(&fields.transpose_b, value, size);
    } else {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    Write(fields, product);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI
cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t) {
  return LtCall("cublasLtMatmulPreferenceInit", [&](DeviceState&) {
    Write(PreferenceFields{0,
                           CUBLASLT_REDUCTION_SCHEME_MASK,
                           {kDefaultAlignment, kDefaultAlignment, kDefaultAlignment,
                            kDefaultAlignment}},
          preference);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value, size_t size) {
  return LtCall("cublasLtMatmulPreferenceSetAttribute", [&](DeviceState&) {
    PreferenceFields fields = Read<PreferenceFields>(preference);
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof(uint64_t)) {
      std::memcpy(&fields.workspace, value, size);
    } else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
               size == sizeof(uint32_t)) {
      std::memcpy(&fields.reductions, value, size);
    } else if (const auto* alignment =
                   std::find(std::begin(kAlignments), std::end(kAlignments), attribute);
               alignment != std::end(kAlignments) && size == sizeof(uint32_t)) {
      std::memcpy(&fields.alignments[alignment - kAlignments], value, size);
    } else {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    Write(fields, preference);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int* found) {
  return LtCall("cublasLtMatmulAlgoGetHeuristic", [&](DeviceState& state) {
    *found = 0;
    const Product p = Describe(product, a, b, c, d);
    const cublasStatus_t status = Check(p);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const auto wishes = Read<PreferenceFields>(preference);
    if (state.settings.proposes_only_aligned && !AlignedAsWished(p, wishes))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    const uint64_t workspace =
        std::min<uint64_t>(wishes.workspace, p.d.rows * p.d.columns * sizeof(float));
    for (int number = 0; number < state.settings.algorithms && *found < wanted; ++number) {
      const uint32_t reduction = ReductionOf(state.settings, number);
      if ((reduction & ~wishes.reductions) != 0 && !state.settings.ignores_reduction_mask) continue;
      cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
      result = {};
      Write(AlgorithmFields{p.d.rows, p.d.columns, p.depth(), workspace, p.a.type, p.d.type, number,
                            reduction},
            &result.algo);
      result.workspaceSize = workspace;
      result.state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(
    cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  return LtCall("cublasLtMatmulAlgoCheck", [&](DeviceState&) {
    const Product p = Describe(product, a, b, c, d);
    const auto fields = Read<AlgorithmFields>(algorithm);
    result->workspaceSize = fields.workspace;
    const cublasStatus_t status = Check(p);
    return status == CUBLAS_STATUS_SUCCESS ? Fits(fields, p) : status;
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
    void* value, size_t size, size_t* written) {
  return LtCall("cublasLtMatmulAlgoConfigGetAttribute", [&](DeviceState& state) {
    if (attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) return CUBLAS_STATUS_NOT_SUPPORTED;
    const auto fields = Read<AlgorithmFields>(algorithm);
    if (fields.number == state.settings.unreadable_algorithm) return CUBLAS_STATUS_INVALID_VALUE;
    const uint32_t reduction = fields.reduction;
    if (size != sizeof reduction) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, &reduction, size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
  });
}

size_t CUBLASWINAPI cublasLtGetVersion(void) {
  size_t version = 0;
  LtCall("cublasLtGetVersion", [&](DeviceState& state) {
    version = state.settings.library_version;
    return CUBLAS_STATUS_SUCCESS;
  });
  return version;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                           const void* alpha, const void* a_data,
                                           cublasLtMatrixLayout_t a, const void* b_data,
                                           cublasLtMatrixLayout_t b, const void* beta,
                                           const void* c_data, cublasLtMatrixLayout_t c,
                                           void* d_data, cublasLtMatrixLayout_t d,
                                           const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                           size_t workspace_bytes, cudaStream_t stream) {
  return LtCall("cublasLtMatmul", [&](DeviceState& state) {
    Product p = Describe(product, a, b, c, d);
    p.a_data = a_data;
    p.b_data = b_data;
    p.c_data = c_data;
    p.d_data = d_data;
    std::memcpy(&p.alpha, alpha, sizeof p.alpha);
    std::memcpy(&p.beta, beta, sizeof p.beta);
    const auto fields = Read<AlgorithmFields>(algorithm);
    p.algorithm = fields.number;
    cublasStatus_t status = Check(p);
    if (status == CUBLAS_STATUS_SUCCESS) status = Fits(fields, p);
    if (status == CUBLAS_STATUS_SUCCESS) status = CheckPlaces(state, p);
    if (fields.number == state.settings.refused_algorithm || state.settings.refuses_all)
      return state.settings.refusal;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (state.CheckStream(stream, "a product") != cudaSuccess) return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes < fields.workspace ||
        !state.Holds(Place::kDevice, workspace, workspace_bytes)) {
      state.Violate("a product without its workspace");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if ((fields.reduction & ~uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) != 0) {
      state.Violate("a product that is not summed in f32");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const FakeProduct timed = {fields.number, static_cast<int64_t>(p.d.columns),
                               static_cast<int64_t>(p.d.rows), static_cast<int64_t>(p.depth())};
    const DeviceSettings& settings = state.settings;
    const bool queued = state.Queue(
        stream,
        [p, &state] {
          coppice::kernels::cuda::LaunchCost cost = {
              p.Bytes(), 2 * static_cast<int64_t>(p.d.rows * p.d.columns * p.depth())};
          cost.cold_bytes = p.WeightBytes();
          state.Count(
              {"product " + std::to_string(p.d.rows) + " x " + std::to_string(p.depth()), cost});
          if (!state.settings.count_only) p.Run();
          return cudaSuccess;
        },
        settings.product_us ? settings.product_us(timed) : settings.work_us);
    state.counts.launches += queued;
    return CUBLAS_STATUS_SUCCESS;
  });
}

const char* CUBLASWINAPI cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t) {
  return "an error of the simulated device";
}

}  // extern "C"
