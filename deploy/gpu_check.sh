#!/usr/bin/env bash
# gpu_check.sh pack [--toolkit DIR]... [--cublas] | run [--out DIR] [--slow N] [--dry-run]
# Tests and measures the CUDA backend on a GPU, in about ten minutes: whether its results are correct, and how fast it is compared
# with the limits of the device.
#   pack  on a machine that builds Coppice: puts this script and the programs for sm_80 and sm_90 into build/gpu_check, once for
#         each CUDA toolkit: that of this machine, and each --toolkit DIR (DIR/bin/nvcc; repeatable). A build of CUDA 12 runs on
#         drivers from r525 on, one of CUDA 13 from r580 on. They need only glibc, the driver and cuBLASLt; --cublas puts cuBLASLt
#         beside them, some 0.5 GB for each. That folder is all that the GPU machine needs from here; cuda-*/needs says the rest.
#   run   on a machine with a GPU and cuBLASLt: beside the programs, in a CUDA toolkit, or in a package of Python. Takes the newest
#         programs that the driver serves and that load, and says which. A part is stopped when it prints nothing for as long as its
#         limit, or takes four times as long; after a failure the others still run. Writes DIR/gpu_check.json and one log per part
#         (default DIR: ./gpu_check_out), then prints a table. Exit status 1 if a part failed or was not run; a goal of speed that is
#         not met is no failure.
#   --slow N  gives each part N times as long, for a machine that is busy.
#   --dry-run  lists the parts and says whether the programs exist and load. Needs no GPU and measures nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=(cuda_kernels_gpu_test cuda_backend_test coppice-bench-cuda coppice-cuda-driver)
most_bytes=$((64 << 20))  # of a pack, without cuBLASLt
most_quiets=4             # a part may take this many times its limit in all

say() { echo "gpu_check: $*"; }
fail() { echo "gpu_check: $*" >&2; exit "${2:-1}"; }

# "12.4" of a toolkit
version_of() { "$1/bin/nvcc" --version | sed -n 's/.*release \([0-9][0-9.]*\).*/\1/p'; }

# The folder of the toolkit of this machine; nothing if there is none.
own_toolkit() {
  local compiler
  compiler=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [ ! -x "$compiler" ] || dirname "$(dirname "$(readlink -f "$compiler")")"
}

# The file of a toolkit's library with that name, not a stub; nothing if there is none.
library_of() {
  local folder
  for folder in "$1/lib64" "$1/targets/x86_64-linux/lib" "$1/lib"; do
    if [ -f "$folder/$2" ]; then readlink -f "$folder/$2"; return; fi
  done
}

# pack CUBLAS TOOLKIT...: CUBLAS 1 puts cuBLASLt beside the programs.
pack() {
  local root out cublas=$1 toolkit version
  shift
  root=$(cd "$here/.." && pwd)
  out=$root/build/gpu_check
  [ $# -gt 0 ] || fail "no CUDA toolkit: neither nvcc, nor /usr/local/cuda, nor --toolkit DIR"
  for toolkit; do
    [ -x "$toolkit/bin/nvcc" ] || fail "$toolkit is no CUDA toolkit: it has no bin/nvcc"
    version=$(version_of "$toolkit")
    [[ $version =~ ^[0-9]+\.[0-9]+$ ]] || fail "$toolkit/bin/nvcc does not say its version"
    [ "${version%.*}" -ge 12 ] || fail "$toolkit has CUDA $version; the backend needs 12 or newer"
  done
  rm -rf "$out"
  mkdir -p "$out"
  cp "$here/gpu_check.sh" "$out/"
  for toolkit; do pack_one "$(realpath "$toolkit")" "$(version_of "$toolkit")"; done
  say "on the GPU machine: gpu_check/gpu_check.sh run --out DIR"
}

# Builds with that toolkit alone: nothing of another one is looked for. Files that are compiled together would bring in what only
# one of them needs, such as MPI.
pack_one() {
  local toolkit=$1 version=$2 build=$root/build/gpu_pack-$2 to=$out/cuda-$2 program library foreign bytes major=${2%.*} nccl=ON
  [ -f "$toolkit/include/nccl.h" ] || nccl=OFF
  if [ ! -f "$build/build.ninja" ] || ! grep -qsx "COPPICE_NVCC:.*=$toolkit/bin/nvcc" "$build/CMakeCache.txt"; then
    rm -rf "$build"
    cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCOPPICE_CUDA=ON -DCOPPICE_PORTABLE=ON -DCOPPICE_UNITY=OFF \
      "-DCOPPICE_FOLDERS=base;model_files;plan;sampling;decoding;comm;kernels;proto;model;lab;tests" "-DCUDAToolkit_ROOT=$toolkit" \
      "-DCOPPICE_NVCC=$toolkit/bin/nvcc" "-DCOPPICE_CUDA_INCLUDE=$toolkit/include" -DCOPPICE_NCCL=$nccl \
      "-DCOPPICE_CUDART=$(library_of "$toolkit" libcudart_static.a)"
  fi
  cmake --build "$build" --target "${programs[@]}"
  mkdir -p "$to"
  for program in "${programs[@]}"; do cp "$build/bin/$program" "$to/"; done
  # Debian has no static libraries of the first three, which need the others. They go beside the programs, which look there first.
  for library in $(needed_libraries "$build/bin" | awk '/lib(hwy|spdlog|fmt|stdc\+\+|gcc_s)\./ {print $3}' | sort -u); do
    cp -L "$library" "$to/"
  done
  foreign=$(needed_libraries "$to" | awk '{print $1}' | sort -u |
    grep -Ev '^(linux-vdso|/lib|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|hwy|spdlog|fmt|cublasLt)\.so|statically)' || true)
  [ -z "$foreign" ] || fail "the programs need libraries that a bare machine lacks: $foreign"
  bytes=$(du -sb "$to" | cut -f1)
  [ "$bytes" -le $most_bytes ] || fail "$to has $bytes bytes, more than $most_bytes"
  library=libcublasLt.so.$major
  printf 'cuda=%s\ndriver=%s\ncublas=%s\nglibc=%s\n' "$version" $((major * 1000)) "$library" "$(least_glibc "$to")" >"$to/needs"
  if [ "$cublas" = 1 ]; then
    [ -n "$(library_of "$toolkit" "$library")" ] || fail "$toolkit has no $library"
    cp "$(library_of "$toolkit" "$library")" "$to/$library"
  fi
  say "$to: $((bytes >> 10)) KiB$([ "$cublas" = 0 ] || echo ", and $(($(stat -c %s "$to/$library") >> 20)) MiB of cuBLASLt");" \
    "needs a driver for CUDA $major.0 and glibc $(least_glibc "$to")"
}

needed_libraries() {
  local program
  for program in "${programs[@]}"; do ldd "$1/$program"; done
}

# The newest version of glibc's symbols that what is packed needs.
least_glibc() { objdump -T "$1"/* 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | cut -d_ -f2; }

# Prints the folders in which cuBLASLt may be, each after a colon, to be appended to LD_LIBRARY_PATH.
library_folders() {
  local toolkit folder own
  own=$(own_toolkit)
  for toolkit in ${CUDA_HOME:+"$CUDA_HOME"} ${CUDA_PATH:+"$CUDA_PATH"} ${own:+"$own"} /usr/local/cuda /usr/local/cuda-*; do
    for folder in "$toolkit/lib64" "$toolkit/targets/x86_64-linux/lib"; do
      [ ! -d "$folder" ] || printf ':%s' "$folder"
    done
  done
  # Packages of Python, as PyTorch brings them.
  while IFS= read -r folder; do
    for folder in "$folder"/nvidia/{cu13,cublas}/lib; do
      [ ! -d "$folder" ] || printf ':%s' "$folder"
    done
  done < <(python3 -c 'import sys; print(*filter(None, sys.path), sep="\n")' 2>/dev/null || true)
}

# The CUDA version that the driver serves, as the driver says it (12020: 12.2); 0 if there is no driver.
driver_version() {
  local program smi
  for program in "$1"/cuda-*/coppice-cuda-driver; do
    "$program" 2>/dev/null && return
  done
  smi=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]* Version: *\([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | head -1)
  if [[ $smi =~ ^([0-9]+)\ ([0-9]+)$ ]]; then echo $((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] * 10)); else echo 0; fi
}
dotted() { echo $(($1 / 1000)).$(($1 % 1000 / 10)); }

# Why the programs of a pack do not load here; nothing if they do.
load_problem() {
  local program missing
  for program in "${programs[@]}"; do
    if [ ! -x "$1/$program" ]; then echo "$program is missing"; return; fi
  done
  for program in "${programs[@]}"; do
    if missing=$(ldd "$1/$program" 2>&1 | grep 'not found'); then
      echo "$program does not load: $(echo "$missing" | tr -s '\t\n ' ' ')"
      return
    fi
  done
}

# Sets `bin` to the newest pack that the driver serves and that loads, `cuda` to its version and `driver` to the driver's, and says why
# it is this one. Status 1 if there is none.
choose_pack() {
  local home=$here folder least problem why='' paths=${LD_LIBRARY_PATH:-}
  compgen -G "$home/cuda-*/needs" >/dev/null || home=$here/../build/gpu_check
  driver=$(driver_version "$home")
  if [ "$driver" = 0 ]; then say "no driver is found (libcuda.so.1)"; else say "the driver serves CUDA $(dotted "$driver")"; fi
  paths+=$(library_folders)
  bin='' cuda=''
  while IFS= read -r folder; do
    [ -f "$folder/needs" ] || continue
    cuda=$(sed -n 's/^cuda=//p' "$folder/needs")
    least=$(sed -n 's/^driver=//p' "$folder/needs")
    if [ "$driver" != 0 ] && [ "$driver" -lt "$least" ]; then
      why+="; those of CUDA $cuda need a driver for CUDA $(dotted "$least")"
      continue
    fi
    export LD_LIBRARY_PATH=${paths#:}
    # cuBLASLt needs libgcc, and does not look beside the programs. A machine that has a compiler has it.
    if ldd "$folder/coppice-bench-cuda" 2>/dev/null | grep -q 'libgcc_s.*not found'; then LD_LIBRARY_PATH+=:$folder; fi
    problem=$(load_problem "$folder")
    if [ -z "$problem" ]; then
      bin=$folder
      say "takes the programs of CUDA $cuda${why}"
      return
    fi
    why+="; of CUDA $cuda, $problem"
  done < <(printf '%s\n' "$home"/cuda-* | sort -rV)
  cuda=''
  [ -n "$why" ] || why="; $home has none: run 'deploy/gpu_check.sh pack' first"
  say "no programs fit this machine${why}"
  return 1
}

# Parts: name, limit in seconds, description. The function part_NAME runs part NAME. It is stopped when it prints nothing for as long as
# its limit, or takes most_quiets times as long.
parts=(
  "facts|20|device and driver"
  "ceilings|30|bandwidth of reading and of a copy, rate of a bf16 product"
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
  "$tool" --tool "$1" --error-exitcode 9 "$bin/cuda_kernels_gpu_test" --gtest_filter="$reduced" 2>&1 | tee "$out/$1.tool" || status=$?
  if grep -qiE 'device not supported|not supported on this|failed to initialize' "$out/$1.tool"; then
    echo "compute-sanitizer refuses this machine"
    return 77
  fi
  return $status
}

running=''  # the process of the part that runs
# Runs one part in a new process. Sets `outcome`, and `took` in seconds.
run_part() {
  local name=$1 quiet=$2 status=0 begin=$SECONDS size=-1 now since=$SECONDS still=0
  if [ "$name" != facts ] && [ $device = 0 ]; then
    outcome="not run: no device"
    echo "$outcome" >"$out/$name.log"
    return
  fi
  : >"$out/$name.log"
  out=$out bin=$bin timeout -k 5 $((most_quiets * quiet)) bash "${BASH_SOURCE[0]}" part "$name" >"$out/$name.log" 2>&1 &
  running=$!
  while kill -0 "$running" 2>/dev/null; do
    now=$(stat -c %s "$out/$name.log")
    if [ "$now" != "$size" ]; then
      size=$now since=$SECONDS
    elif [ $((SECONDS - since)) -gt "$quiet" ]; then
      still=1
      kill "$running" 2>/dev/null || true
      break
    fi
    sleep 0.1
  done
  wait "$running" || status=$?
  running=''
  case $status in
    0) outcome=ok ;;
    77) outcome="not run: $(tail -1 "$out/$name.log")" ;;
    124 | 137) outcome="stopped after $((most_quiets * quiet)) s" ;;
    *) outcome="failed (status $status): $(grep -v '^ *$' "$out/$name.log" | tail -1 || true)" ;;  # the log may be empty
  esac
  [ $still = 0 ] || outcome="stopped: no output for $quiet s"
  took=$((SECONDS - begin))
}

# Ends the part that runs, and the script with status $1. `timeout` puts the part into a process group of its own, which Ctrl-C does
# not reach; it passes SIGTERM on, and after 5 s kills.
stop() {
  trap '' INT TERM HUP
  if [ -n "$running" ]; then
    kill "$running" 2>/dev/null || true
    wait "$running" || true
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
    printf '{"started":%s,"host":%s,"driver":%s,"cuda":%s,"parts":[' "$(quoted "$(date -u +%FT%TZ)")" "$(quoted "$(uname -srm)")" \
      "$(quoted "$(dotted "$driver")")" "$(quoted "$cuda")"
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
  choose_pack || broken=1
  for entry in "${parts[@]}"; do
    IFS='|' read -r name seconds what <<<"$entry"
    printf '%-15s limit %3s s  %s\n' "$name" "$seconds" "$what"
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
  pack | run) ;;
  part) "part_$1"; exit ;;  # run_part, for its time limit
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  *) fail "pack or run, not '$mode' (see --help)" 2 ;;
esac
out=gpu_check_out dry=0 slow=1 cublas=0 toolkits=()
while [ $# -gt 0 ]; do
  case $mode$1 in
    pack--toolkit) [ $# -gt 1 ] || fail "--toolkit needs a folder" 2; toolkits+=("$2"); shift 2 ;;
    pack--toolkit=*) toolkits+=("${1#*=}"); shift ;;
    pack--cublas) cublas=1; shift ;;
    run--out) [ $# -gt 1 ] || fail "--out needs a folder" 2; out=$2; shift 2 ;;
    run--out=*) out=${1#*=}; shift ;;
    run--slow) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--slow needs a number" 2; slow=$2; shift 2 ;;
    run--dry-run) dry=1; shift ;;
    *) fail "$mode: unknown argument '$1' (see --help)" 2 ;;
  esac
done
if [ "$mode" = pack ]; then
  own=$(own_toolkit)
  pack $cublas ${own:+"$own"} "${toolkits[@]}"
  exit
fi
if [ $dry = 1 ]; then
  dry_run
  exit
fi
choose_pack || fail "the programs cannot run here"
run
