#!/usr/bin/env bash
# ranks.sh RANKS FLAG...: the ranks of a replica under one mpirun, for coppice-worker@.service. The files of Open MPI are below
# $RUNTIME_DIRECTORY, which systemd makes and removes.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
if ! [[ ${1:-} =~ ^[1-9][0-9]{0,3}$ ]]; then
  echo "ranks: RANKS must be a number of at least 1, got '${1:-}'" >&2
  exit 2
fi
ranks=$1
shift
if [ -z "${RUNTIME_DIRECTORY:-}" ] || [ ! -d "$RUNTIME_DIRECTORY" ]; then
  echo "ranks: RUNTIME_DIRECTORY must be a folder, got '${RUNTIME_DIRECTORY:-}'" >&2
  exit 2
fi
# shellcheck source=deploy/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
export OMPI_MCA_orte_tmpdir_base=$RUNTIME_DIRECTORY OMPI_MCA_btl_vader_backing_directory=$RUNTIME_DIRECTORY
# mpirun ends its ranks at SIGTERM and returns a failure. This is an ordinary end, so systemd must not see one.
mpirun -q -np "$ranks" "$coppice_bin/coppice-worker" "$@" &
mpirun=$! stopped=0 status=0
trap 'stopped=1; kill -TERM "$mpirun" 2>/dev/null || true' TERM INT
wait "$mpirun" || status=$?
while kill -0 "$mpirun" 2>/dev/null; do wait "$mpirun" || status=$?; done  # a signal ends `wait` before mpirun has ended
[ $stopped = 0 ] || status=0
exit "$status"
