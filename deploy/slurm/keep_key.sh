#!/usr/bin/env bash
# slurm/keep_key.sh FILE
# A task on each node of a job (slurm/cluster.sh starts it). Reads the cluster key from standard input, one line, and writes it to
# FILE, which only this user can read, in a folder of its own that must not belong to anybody else. Prints `key kept`, or `key not
# kept` and why. Removes the folder when standard input ends, or at SIGTERM.
set -euo pipefail
[ $# -eq 1 ] || { echo "slurm/keep_key.sh: expected one file name" >&2; exit 2; }
file=$1 folder=${1%/*}
fail() { echo "key not kept on ${SLURMD_NODENAME:-$HOSTNAME}: $*"; exit 1; }

umask 077
said=$(mkdir "$folder" 2>&1) || {
  # Nodes that share the place share the folder. It is not one that somebody else has put there: with a link, or to read the key.
  { [ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ]; } || fail "$said"
}
waits=
# shellcheck disable=SC2317  # reached through the trap
remove() {
  trap '' TERM INT HUP
  rm -rf -- "$folder"
  [ -z "$waits" ] || kill "$waits" 2>/dev/null || true
}
trap remove EXIT
trap 'exit 143' TERM INT HUP

IFS= read -r key || fail "no key on standard input"
# The file is there whole or not at all, for a node that shares the place may read it meanwhile.
said=$({ written=$(mktemp "$folder/XXXXXXXX") && echo "$key" >"$written" && mv -f "$written" "$file"; } 2>&1) || fail "$said"
unset key
echo "key kept"
exec 3<&0  # a background command has another standard input
cat <&3 >/dev/null &
waits=$!
wait "$waits"
