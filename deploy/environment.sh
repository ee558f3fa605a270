# Sourced by the launchers and tests. Sets what MPI and OpenMP need to work well on one host. A variable that the user has
# already set is not changed. The reason for each setting: docs/operating.md, "Settings of MPI and OpenMP".
# shellcheck shell=bash

# In a tree the programs are those of its release build. In an installation the launchers are below PREFIX/lib/coppice, without the
# files of a build, and the programs in PREFIX/bin. For Python: launch/installation.py.
coppice_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034  # these are read by the scripts that source this file
if [ -f "$coppice_root/CMakeLists.txt" ]; then
  coppice_installed=0 coppice_bin=${COPPICE_BIN:-$coppice_root/build/release/bin}
else
  coppice_installed=1 coppice_bin=${COPPICE_BIN:-${coppice_root%/lib/coppice}/bin}
fi

coppice_default() { [ -n "${!1+set}" ] || export "$1=$2"; }

coppice_default OMPI_MCA_mpi_yield_when_idle 1           # more ranks than cores must not spin
coppice_default OMPI_MCA_hwloc_base_binding_policy none  # separate jobs must not all pin to core 0
coppice_default OMPI_MCA_rmaps_base_oversubscribe 1
coppice_default OMPI_MCA_btl vader,self                  # one host: shared memory only
coppice_default OMPI_MCA_btl_tcp_if_include lo
coppice_default OMPI_MCA_oob_tcp_if_include lo
coppice_default OMPI_MCA_odls_base_sigkill_timeout 0     # a dead rank ends its job at once
coppice_default OMP_WAIT_POLICY passive
if [ "$(id -u)" -eq 0 ]; then
  coppice_default OMPI_ALLOW_RUN_AS_ROOT 1
  coppice_default OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
fi
# Yama and the seccomp filters of containers forbid cross-memory attach between sibling processes.
if [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)" != 0 ] ||
  grep -q '^Seccomp:[[:space:]]*2' /proc/self/status 2>/dev/null; then
  coppice_default OMPI_MCA_btl_vader_single_copy_mechanism none
fi

# Prints how many threads each of $1 processes gets when all of them compute at the same time on this host; at least 1.
coppice_threads() {
  local each=$(($(nproc) / $1))
  echo $((each > 0 ? each : 1))
}

# Makes the folders for MPI's session files and shared-memory segments and sets coppice_run_folders to them. They belong to
# this launch alone, so the caller can always remove them.
coppice_make_run_folders() {
  local session
  session=$(mktemp -d "${TMPDIR:-/tmp}/coppice.$$.XXXXXX")
  coppice_run_folders=("$session")
  export OMPI_MCA_orte_tmpdir_base=$session
  if [ -d /dev/shm ] && [ -w /dev/shm ]; then
    coppice_run_folders+=("$(mktemp -d "/dev/shm/coppice.$$.XXXXXX")")
    export OMPI_MCA_btl_vader_backing_directory=${coppice_run_folders[1]}
  fi
}

# Prints the pids of the processes in session $1. (mpirun puts its ranks in new process groups, but not in new sessions.)
coppice_session_pids() {
  local stat line pid state parent group session rest
  for stat in /proc/[0-9]*/stat; do
    { IFS= read -r line <"$stat"; } 2>/dev/null || continue
    pid=${line%% *}
    # shellcheck disable=SC2034  # only state and session are used
    read -r state parent group session rest <<<"${line##*) }"
    if [ "$session" = "$1" ] && [ "$state" != Z ]; then echo "$pid"; fi
  done
}

# Ends the sessions $2...: sends SIGTERM to their leaders, and after $1 seconds SIGKILL to every process that is left.
coppice_end_sessions() {
  local grace=$1 session left deadline
  shift
  for session in "$@"; do kill -TERM "$session" 2>/dev/null || true; done
  deadline=$((SECONDS + grace))
  while :; do
    left=()
    for session in "$@"; do mapfile -t -O ${#left[@]} left < <(coppice_session_pids "$session"); done
    [ ${#left[@]} -gt 0 ] || return 0
    [ $SECONDS -lt $deadline ] || break
    sleep 0.1
  done
  kill -KILL "${left[@]}" 2>/dev/null || true
}

# Prints the lines of the logs $@ in which a program says why it ended ("coppice-worker: ...").
coppice_reasons() { grep -hE '^coppice-[a-z]+: ' "$@" 2>/dev/null | sort -u | head -n 8; }
