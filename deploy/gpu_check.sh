#!/usr/bin/env bash
# gpu_check.sh pack | run [--out DIR] [--slow N] [--dry-run]
# Tests and measures the CUDA backend on a GPU, in less than ten minutes: whether its results are correct, and how fast it is
# compared with the limits of the device.
#   pack  on a machine that builds Coppice: puts the programs for sm_80 and sm_90 and this script into build/gpu_check. They
#         need only glibc, the driver and cuBLASLt. That folder is all that the GPU machine needs from here.
#   run   on a machine with a GPU and the CUDA toolkit. Each part has its own time limit; after a failure the others still
#         run. Writes DIR/gpu_check.json and one log per part (default DIR: ./gpu_check_out), then prints a table. Exit
#         status 1 if a part failed or was not run; a goal of speed that is not met is no failure.
#   --slow N  gives each part N times as long, for a machine that is busy.
#   --dry-run  lists the parts and says whether the programs exist and load. Needs no GPU and measures nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=(cuda_kernels_gpu_test cuda_backend_test coppice-bench-cuda)
most_bytes=$((64 << 20))

say() { echo "gpu_check: $*"; }
fail() { echo "gpu_check: $*" >&2; exit "${2:-1}"; }

pack() {
  local root build out program library libraries foreign bytes
  root=$(cd "$here/.." && pwd)
  build=$root/build/gpu_pack
  out=$root/build/gpu_check
  if [ ! -f "$build/build.ninja" ]; then
    cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCOPPICE_CUDA=ON -DCOPPICE_PORTABLE=ON \
      "-DCOPPICE_FOLDERS=base;plan;sampling;decoding;comm;kernels;proto;model;lab;tests"
  fi
  cmake --build "$build" --target "${programs[@]}"
  rm -rf "$out"
  mkdir -p "$out"
  for program in "${programs[@]}"; do cp "$build/bin/$program" "$out/"; done
  # Debian has no static libraries of the first three, which need the others. They go beside the programs, which look there first.
  libraries=$(for program in "${programs[@]}"; do ldd "$build/bin/$program"; done | awk '/lib(hwy|spdlog|fmt|stdc\+\+|gcc_s)\./ {print $3}' | sort -u)
  for library in $libraries; do cp -L "$library" "$out/"; done
  cp "$here/gpu_check.sh" "$out/"
  foreign=$(for program in "${programs[@]}"; do ldd "$out/$program"; done | awk '{print $1}' | sort -u |
    grep -Ev '^(linux-vdso|/lib|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|hwy|spdlog|fmt|cublasLt)\.so|statically)' || true)
  [ -z "$foreign" ] || fail "the programs need libraries that a bare machine lacks: $foreign"
  bytes=$(du -sb "$out" | cut -f1)
  [ "$bytes" -le $most_bytes ] || fail "$out has $bytes bytes, more than $most_bytes"
  say "$out: $((bytes >> 10)) KiB; on the GPU machine: gpu_check/gpu_check.sh run --out DIR"
}

# Prints the folders in which cuBLASLt may be, each after a colon, to be appended to LD_LIBRARY_PATH.
library_folders() {
  local toolkit folder compiler
  compiler=$(command -v nvcc || true)
  for toolkit in ${CUDA_HOME:+"$CUDA_HOME"} ${CUDA_PATH:+"$CUDA_PATH"} ${compiler:+"$(dirname "$(dirname "$compiler")")"} \
    /usr/local/cuda /usr/local/cuda-*; do
    for folder in "$toolkit/lib64" "$toolkit/targets/x86_64-linux/lib"; do
      [ ! -d "$folder" ] || printf ':%s' "$folder"
    done
  done
}

find_programs() {
  bin=$here
  [ -x "$bin/${programs[0]}" ] || bin=$here/../build/gpu_check
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}$(library_folders)
  export LD_LIBRARY_PATH
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH#:}
  # cuBLASLt needs libgcc, and does not look beside the programs. A machine that has a compiler has it.
  if ldd "$bin/coppice-bench-cuda" 2>/dev/null | grep -q 'libgcc_s.*not found'; then LD_LIBRARY_PATH+=:$bin; fi
  local program missing broken=0
  for program in "${programs[@]}"; do
    if [ ! -x "$bin/$program" ]; then
      say "$program is missing in $bin: run 'deploy/gpu_check.sh pack' first"
      broken=1
    elif missing=$(ldd "$bin/$program" 2>&1 | grep 'not found'); then
      say "$program does not load: $(echo "$missing" | tr -s '\t\n ' ' ')"
      broken=1
    fi
  done
  return $broken
}

# Parts: name, time limit in seconds, description. The function part_NAME runs part NAME.
parts=(
  "facts|20|device and driver"
  "ceilings|30|bandwidth of a copy, rate of a bf16 product"
  "kernels|80|every kernel against double precision"
  "backend|75|the CUDA backend against the CPU backend"
  "probe|20|every instruction that is written in assembly, bit by bit"
  "memcheck|45|compute-sanitizer: accesses outside of memory"
  "racecheck|45|compute-sanitizer: races in shared memory"
  "tune|40|the fastest algorithm of every matrix product of Llama-3.1-8B, 1 to 512 rows"
  "matmul|30|these products, 1 to 64 rows: as cuBLASLt proposes, by the skinny kernel, as tuned"
  "attention|15|forest attention of one layer"
  "wide|25|attention by wgmma and the copy engine: instructions bit by bit, results, times beside the portable kernel"
  "small|10|norm, rotary positions, activation"
  "candidate_list|10|candidate lists of 34 rows of logits"
  "step|45|whole steps of an 8B decoder with random weights, and what of them is the device's"
  "draft|30|passes and forests of draft models of 1B and 68M"
  "round|35|rounds of drafting and verifying, beside plain steps"
  "goals|5|how fast it is to be, and is"
)
reduced='CudaNorm.ZeroRow*:CudaAttention.MixedTypes:CudaAttentionTiles.MixedRequests:CudaCommit.*:CudaGemmSkinny.SplitsOf*:CudaCandidateLists.SmallMixedLists:CudaRowSums.SmallRows:DeviceProbe.*'

part_facts() {
  nvidia-smi --query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.memory --format=csv 2>/dev/null || echo "nvidia-smi is not there, or fails"
  uname -a
  nvcc --version 2>/dev/null | tail -2 || echo "no nvcc"
  bench facts
}
part_kernels() { "$bin/cuda_kernels_gpu_test" --gtest_filter='-DeviceProbe*:CudaAttentionWide*'; }
part_backend() { "$bin/cuda_backend_test"; }
part_probe() { "$bin/cuda_kernels_gpu_test" --gtest_filter='DeviceProbe.*'; }
part_memcheck() { sanitizer memcheck; }
part_racecheck() { sanitizer racecheck; }
part_ceilings() { bench ceilings; }
part_tune() { bench tune; }
part_matmul() { bench matmul; }
part_attention() { bench attention; }
# What it tests is off until this has passed. Instructions first: a kernel that uses a wrong one may never end.
part_wide() {
  if ! bench facts | grep ', wgmma'; then
    echo "the device is not of compute capability 9.0"
    return 77
  fi
  "$bin/cuda_kernels_gpu_test" --gtest_filter='DeviceProbeWide.*'
  "$bin/cuda_kernels_gpu_test" --gtest_filter='CudaAttentionWide*'
  bench wide
}
part_small() { bench small; }
part_candidate_list() { bench candidate_list; }
part_step() { bench step; }
part_draft() { bench draft; }
part_round() { bench round; }
part_goals() { bench goals; }

bench() {
  local bandwidth
  bandwidth=$(sed -n 's/.*"bytes_per_second":\([0-9.e+]*\).*/\1/p' "$out/measured.jsonl" 2>/dev/null | tail -1)
  "$bin/coppice-bench-cuda" "$1" --json="$out/measured.jsonl" ${bandwidth:+"--bandwidth=$bandwidth"} --tuning_cache="$out/tuning"
}

# Returns 77 if the tool is missing or does not work on this machine; the output says which.
sanitizer() {
  local tool=compute-sanitizer status=0
  command -v $tool >/dev/null || tool=${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer
  if [ ! -x "$(command -v "$tool")" ]; then
    echo "compute-sanitizer is not installed"
    return 77
  fi
  "$tool" --tool "$1" --error-exitcode 9 "$bin/cuda_kernels_gpu_test" --gtest_filter="$reduced" >"$out/$1.tool" 2>&1 || status=$?
  cat "$out/$1.tool"
  if grep -qiE 'device not supported|not supported on this|failed to initialize' "$out/$1.tool"; then
    echo "compute-sanitizer refuses this machine"
    return 77
  fi
  return $status
}

# Runs one part in a new process. Sets `outcome`, and `took` in seconds.
run_part() {
  local name=$1 seconds=$2 status=0 begin=$SECONDS
  if [ "$name" != facts ] && [ $device = 0 ]; then
    outcome="not run: no device"
    echo "$outcome" >"$out/$name.log"
    return
  fi
  out=$out bin=$bin timeout -k 5 "$seconds" bash "${BASH_SOURCE[0]}" part "$name" >"$out/$name.log" 2>&1 &
  wait $! || status=$?
  case $status in
    0) outcome=ok ;;
    77) outcome="not run: $(tail -1 "$out/$name.log")" ;;
    124 | 137) outcome="stopped after $seconds s" ;;
    *) outcome="failed (status $status): $(grep -v '^ *$' "$out/$name.log" | tail -1)" ;;
  esac
  took=$((SECONDS - begin))
}

# Ends the part that runs, and the script with status $1. `timeout` puts the part into a process group of its own, which Ctrl-C does
# not reach; it passes SIGTERM on, and after 5 s kills.
stop() {
  local part
  trap '' INT TERM HUP
  part=$(jobs -p)
  if [ -n "$part" ]; then
    kill "$part" 2>/dev/null || true
    wait "$part" || true
  fi
  rm -f "$out/gpu_check.json"  # half of it is no JSON
  say "stopped; the logs are in $out" >&2
  exit "$1"
}

quoted() { printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }

run() {
  local entry name seconds what outcome took device=1 failed=0 separator=
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  trap 'stop 130' INT
  trap 'stop 143' TERM
  trap 'stop 129' HUP
  rm -f "$out"/measured.jsonl "$out"/*.log "$out"/*.tool
  rm -rf "$out/tuning"
  : >"$out/measured.jsonl"
  local summary=()
  {
    printf '{"started":%s,"host":%s,"parts":[' "$(quoted "$(date -u +%FT%TZ)")" "$(quoted "$(uname -srm)")"
    for entry in "${parts[@]}"; do
      IFS='|' read -r name seconds what <<<"$entry"
      took=0
      run_part "$name" $((seconds * slow))
      [ "$outcome" = ok ] || failed=1
      if [ "$name" = facts ] && [ "$outcome" != ok ]; then device=0; fi
      say "$name ($what): $outcome, $took s" >&2
      summary+=("$(printf '%-15s %5s s  %s' "$name" "$took" "$outcome")")
      printf '%s\n{"part":%s,"outcome":%s,"seconds":%s}' "$separator" "$(quoted "$name")" "$(quoted "$outcome")" "$took"
      separator=,
    done
    printf '],\n"measured":['
    sed '$!s/$/,/' "$out/measured.jsonl"
    printf ']}\n'
  } >"$out/gpu_check.json"
  trap - INT TERM HUP
  echo
  grep -v '^ *$' "$out/facts.log" || true
  printf '%s\n' "${summary[@]}"
  echo
  printf '%-15s %-60s %10s %10s %6s\n' part case "us" "floor us" "floor"
  for name in ceilings tune matmul attention wide small candidate_list step draft round goals; do
    if [ "$(grep -c "^$name" "$out/$name.log")" = 0 ]; then
      echo "$name: nothing was measured: $(tail -1 "$out/$name.log")"
    else
      grep "^$name" "$out/$name.log"
    fi
  done
  [ $device = 1 ] || say "no GPU could be used: nothing was tested and nothing was measured"
  return $failed
}

count_tests() {
  local list
  list=$("$bin/$1" --gtest_list_tests) || return 1
  echo "$1: $(grep -c '^  ' <<<"$list" || true) tests"
}

dry_run() {
  local entry name seconds what broken=0
  find_programs || broken=1
  for entry in "${parts[@]}"; do
    IFS='|' read -r name seconds what <<<"$entry"
    printf '%-15s at most %3s s  %s\n' "$name" "$seconds" "$what"
    [ $broken = 0 ] || continue
    case $name in
      kernels) count_tests cuda_kernels_gpu_test || broken=1 ;;
      backend) count_tests cuda_backend_test || broken=1 ;;
      probe | memcheck | racecheck) ;;
      *) "$bin/coppice-bench-cuda" "$name" --list || broken=1 ;;
    esac
  done
  say "dry run: nothing ran on a device, nothing was tested or measured"
  return $broken
}

mode=${1:-}
shift || true
case $mode in
  pack) [ $# = 0 ] || fail "pack takes no arguments (see --help)" 2; pack; exit ;;
  part) "part_$1"; exit ;;  # run_part, for its time limit
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  run) ;;
  *) fail "pack or run, not '$mode' (see --help)" 2 ;;
esac
out=gpu_check_out dry=0 slow=1
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -gt 1 ] || fail "--out needs a folder" 2; out=$2; shift 2 ;;
    --out=*) out=${1#*=}; shift ;;
    --slow) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--slow needs a number" 2; slow=$2; shift 2 ;;
    --dry-run) dry=1; shift ;;
    *) fail "unknown argument '$1' (see --help)" 2 ;;
  esac
done
if [ $dry = 1 ]; then
  dry_run
  exit
fi
find_programs || fail "the programs cannot run here"
run
