# Sourced by the launchers and tests: settings under which MPI and OpenMP behave on one host. A variable that the
# user has set stays as it is. Why each one: docs/operating.md, "Settings of MPI and OpenMP".
# shellcheck shell=bash

coppice_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034  # read by the scripts that source this file
coppice_bin=${COPPICE_BIN:-$coppice_root/build/release/bin}

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
# Cross-memory attach is refused to siblings by Yama and by the seccomp filters of containers.
if [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)" != 0 ] ||
  grep -q '^Seccomp:[[:space:]]*2' /proc/self/status 2>/dev/null; then
  coppice_default OMPI_MCA_btl_vader_single_copy_mechanism none
fi

# Threads for each of $1 processes that compute at the same time on this host; at least 1.
coppice_threads() {
  local each=$(($(nproc) / $1))
  echo $((each > 0 ? each : 1))
}

# Makes the folders in which MPI keeps its session files and shared-memory segments, private to one launch, so that
# whoever made them can remove them whatever happened: sets coppice_run_folders.
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

# Pids of the processes in session $1 (mpirun gives its ranks process groups of their own, but not sessions).
coppice_session_pids() {
  local stat line pid state parent group session rest
  for stat in /proc/[0-9]*/stat; do
    { IFS= read -r line <"$stat"; } 2>/dev/null || continue
    pid=${line%% *}
    # shellcheck disable=SC2034  # the fields before and after are read past
    read -r state parent group session rest <<<"${line##*) }"
    if [ "$session" = "$1" ] && [ "$state" != Z ]; then echo "$pid"; fi
  done
}

# Ends the sessions $2...: SIGTERM to their leaders, SIGKILL to all that is left $1 seconds later.
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

# The reason lines that programs printed to the logs $@ before they ended ("coppice-worker: ...").
coppice_reasons() { grep -hE '^coppice-[a-z]+: ' "$@" 2>/dev/null | sort -u | head -n 8; }
