#!/usr/bin/env bash
# netns_agent.sh PREFIX HOST COMMAND...: runs a command line on a host of a network of namespaces (launch/network.py), called as
# ssh is. The command gets a host name of its own and, as with ssh, none of the caller's variables.
set -euo pipefail
prefix=$1 host=$2
shift 2
keep=(HOME="$HOME" PATH="$PATH")
for name in ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS; do [ -z "${!name:-}" ] || keep+=("$name=${!name}"); done
# shellcheck disable=SC2016  # the inner shell expands
exec env -i "${keep[@]}" ip netns exec "$prefix-$host" unshare --uts sh -c 'echo "$1" >/proc/sys/kernel/hostname && exec sh -c "$2"' \
  sh "$host" "$*"
