#!/usr/bin/env bash
# netns_cluster.sh [--replicas LIST] [--rates LIST] [--delays LIST] [--loss PERCENT] [--tp T] [--requests N] [--concurrency N]
#                  [--tokens N] [--body JSON] [--target DIR --draft DIR] [--bin DIR] [--json FILE]
# Measures a cluster across hosts that are network namespaces of this machine: the coordinator, each replica and the draft nodes have
# a host each, and the load generator is on another. Prints a line for each combination of the number of replicas (default: 1,2), the
# rate of the links of the hosts in Mbit/s (0: as fast as they can) and the delay of the draft nodes' link in ms, one way: requests and
# tokens per second, rounds per second of a replica, accepted tokens per round, and the bytes on the draft nodes' link per accepted
# token. --loss is that of the draft nodes' link. The cluster is started anew for each number of replicas. Needs root, iproute2 and
# /dev/net/tun. Ctrl-C removes everything; what a killed run left is removed by the next one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
exec python3 -B "$here/launch/measure_hosts.py" "$@"
