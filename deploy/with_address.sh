#!/usr/bin/env bash
# with_address.sh TOWARDS COMMAND...: runs the command with this host's address, as the host TOWARDS sees it, in place of each
# %ADDRESS% in its words. For launchers that give the same command line to every host (Slurm, Kubernetes).
set -euo pipefail
towards=$1
shift
# A datagram socket that is connected sends nothing, but has the address that packets to there would have.
address=$(python3 -c '
import socket, sys
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((sys.argv[1], 9))
        print(s.getsockname()[0])
except OSError as error:
    sys.exit(f"with_address: {sys.argv[1]}: {error}")' "$towards")
exec "${@//%ADDRESS%/$address}"
