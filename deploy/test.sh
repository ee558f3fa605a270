#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test except the long ones. If the headers of the CUDA toolkit are installed, then
# also tests the CUDA backend on a simulated device. If its compiler is, too, then also builds the programs for GPUs (sm_80, sm_90), and
# tests that they say what is missing on a machine without one; unless COPPICE_TEST_SECONDS of the environment are over by then.
# --label NAME: only tests with that label (`long`: the statistical tests with ten times the samples, and tests/mutants;
# `cuda-sim-asan`, `cuda-sim-tsan`: the CUDA kernels under a sanitizer, in several orders of their threads). --preset NAME: builds and
# tests another preset (asan, tsan). Other arguments go to ctest (-R PATTERN, -V, ...). With --label, --preset or other arguments, the
# CUDA backend's tests are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=release preset=release arguments=() targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --label)
      [ $# -ge 2 ] || { echo "test: --label needs a name" >&2; exit 2; }
      case $2 in
        long) preset=release-long ;;  # the other presets leave these tests out
        cuda-sim-asan | cuda-sim-tsan)
          build=${2##*-} preset=${2##*-} targets=(cuda_kernels_test) arguments+=(-L "$2")
          export COPPICE_ORDERS=${COPPICE_ORDERS:-20} ;;
        *) arguments+=(-L "$2") ;;
      esac
      shift 2 ;;
    --preset)
      [ $# -ge 2 ] || { echo "test: --preset needs a name" >&2; exit 2; }
      build=$2 preset=$2
      shift 2 ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

deploy/setup.sh --tests
deploy/build.sh "$build" "${targets[@]}"
# shellcheck source=deploy/environment.sh
. deploy/environment.sh
# Most tests wait most of the time, so there are more of them than cores. Those that measure run alone (RUN_SERIAL), and so does every
# test under a sanitizer or with ten times the samples.
jobs=$(($(nproc) < 4 ? 2 * $(nproc) : 8))
[ "$preset" = release ] || jobs=1
ctest --preset "$preset" --parallel "$jobs" --no-tests=error "${arguments[@]}"

# If the headers of the CUDA toolkit are installed: the CUDA backend on a simulated device, and a cluster that uses it.
cuda=${CUDA_PATH:-/usr/local/cuda}
if [ "$preset" = release ] && [ ${#arguments[@]} -eq 0 ] && [ -f "$cuda/include/cuda_bf16.h" ]; then
  programs=(coppice-bench-cuda coppice-coordinator coppice-cuda-driver coppice-draft coppice-predict-cuda coppice-worker fake_cuda_driver
    fake_nvml)
  suites=(cuda_backend_test cuda_bench_test cuda_device_test cuda_exact_engine_test cuda_exact_test cuda_families_test
    cuda_one_shot_ranks_test cuda_ranks_test cuda_speculation_test cuda_states_test cuda_tuning_test cuda_windows_test
    gpu_prediction_test)
  deploy/build.sh cuda-sim "${programs[@]}" "${suites[@]}" cuda_kernels_test
  names=("${suites[@]}" cuda_driver_version cuda_gpu_check cuda_gpu_check_sim cuda_predict cuda_predict_exact cuda_predict_goals
    cuda_predict_table cuda_predict_tuned cuda_predict_wide cluster_cuda cluster_cuda_heads_dflash cluster_cuda_heads_eagle3
    cluster_cuda_ranks)
  ctest --preset cuda-sim --parallel "$jobs" --no-tests=error -R "^($(IFS='|'; echo "${names[*]}"))\$"

  # For GPUs, of which this machine may have none.
  if [ "$SECONDS" -gt "${COPPICE_TEST_SECONDS:-86400}" ]; then
    echo "test: $SECONDS s are over, so the programs for GPUs are not built (COPPICE_TEST_SECONDS=$COPPICE_TEST_SECONDS)"
  elif [ -x "$cuda/bin/nvcc" ] && [ -f "$cuda/include/cublasLt.h" ]; then
    PATH=$PATH:$cuda/bin deploy/build.sh cuda coppice-coordinator coppice-worker coppice-draft cuda_backend_test cuda_kernels_gpu_test
    ctest --preset cuda --no-tests=error -R "^(cuda_backend_test|cluster_cuda_missing)$"
  fi
fi
