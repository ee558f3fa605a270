#!/usr/bin/env bash
# root_listing.sh: prints every file of the root that it runs in, with what it is, and the users and groups. Left out: what apt, dpkg, the
# linker and systemd keep for themselves. Two listings differ if a package has left or taken something.
set -euo pipefail
cd /
find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache/apt -o -path ./var/cache/debconf -o \
  -path ./var/cache/ldconfig -o -path ./var/log -o -path ./var/lib/systemd -o -path ./etc/ld.so.cache -o -path './etc/*-' -o \
  -path ./mnt -o -path './tmp/*' -o -path './var/tmp/*' \) -prune -o -printf '%p %y %m %u %l\n' | sort
if [ "${1:-}" != --files ]; then cat /etc/passwd /etc/group; fi
