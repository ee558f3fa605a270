#!/usr/bin/env bash
# with_address.sh TOWARDS COMMAND...: runs the command with this host's address, as the host TOWARDS sees it, in place of each
# %ADDRESS% in its words, and NCCL told to use the interface that has it. For launchers that give the same command line to every
# host (Slurm, Kubernetes), and for replicas over several hosts.
set -euo pipefail
towards=$1
shift
# A datagram socket that is connected sends nothing, but has the address that packets to there would have. The system lists
# interfaces with their addresses as 40 bytes each: 16 of the name, 4 before the address.
found=$(python3 -c '
import array, fcntl, socket, struct, sys
SIOCGIFCONF = 0x8912
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((sys.argv[1], 9))
        address = s.getsockname()[0]
        room = array.array("B", bytes(40 * 1024))
        size, _ = struct.unpack("iP", fcntl.ioctl(s, SIOCGIFCONF, struct.pack("iP", len(room), room.buffer_info()[0])))
except OSError as error:
    sys.exit(f"with_address: {sys.argv[1]}: {error}")
entries = [bytes(room[i:i + 40]) for i in range(0, size, 40)]
names = [e[:16].split(b"\0")[0].decode().split(":")[0] for e in entries if socket.inet_ntoa(e[20:24]) == address]
print(address, next((name for name in names if name != "lo"), ""))' "$towards")
read -r address interface <<<"$found"
# NCCL takes names of interfaces alone, and by itself the first that it finds, whomever that reaches. What is set for it stays.
if [ -n "$interface" ] && [ -z "${NCCL_SOCKET_IFNAME+set}" ] &&
  ! grep -qs '^NCCL_SOCKET_IFNAME=' "${NCCL_CONF_FILE:-${HOME:-}/.nccl.conf}" /etc/nccl.conf; then
  export NCCL_SOCKET_IFNAME="=$interface"  # that name, not all that begin with it
fi
exec "${@//%ADDRESS%/$address}"
