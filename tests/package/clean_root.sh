#!/usr/bin/env bash
# clean_root.sh [--no-boot] [PACKAGE.deb]: installs the Debian package (default: it is built) in a new minimal root of this distribution,
# twice, uses it and purges it. First without systemd, as in a container: apt finds what it depends on, and a user without rights runs
# the demo. Then the root is booted by systemd-nspawn, and units.sh sees that the services are confined, serve, come back and end. Each
# time purge must leave nothing. --no-boot: only the first. Needs root, mmdebstrap, systemd-nspawn and the mirror of this machine's apt.
# Everything is below a temporary folder, which is removed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { echo "clean_root: $*"; }
fail() { echo "clean_root: $*" >&2; exit 1; }

inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}
as_user() { inside setpriv --reuid tester --regid tester --clear-groups env -C /home/tester HOME=/home/tester "$@"; }
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "failed: $*"; }; }
same() {
  diff "$given/before" "$given/after" >"$work/difference" || { cat "$work/difference" >&2; fail "purge has left or taken something ($1)"; }
  say "purge left nothing ($1)"
}

# In mounts and processes of its own, which end with it.
without_systemd() {
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount --bind "$given" "$root/mnt"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  quietly inside useradd --create-home --shell /bin/bash tester
  quietly inside apt-get update
  quietly inside /mnt/root_listing.sh --files
  cp "$work/log" "$given/before"
  say "installing with apt, without systemd"
  quietly inside apt-get install -y --no-install-recommends /mnt/coppice.deb
  as_user coppice --version
  quietly as_user coppice demo --once
  tail -n 2 "$work/log"
  as_user coppice check
  quietly inside apt-get purge -y --autoremove coppice
  quietly inside /mnt/root_listing.sh --files
  cp "$work/log" "$given/after"
  ! grep coppice "$root/etc/passwd" "$root/etc/group" || fail "a user is left"
  same "without systemd"
  say "installing systemd, and what the package depends on"
  quietly inside apt-get install -y --no-install-recommends systemd systemd-sysv dbus procps
  quietly inside apt-get satisfy -y --no-install-recommends "$(dpkg-deb -f "$given/coppice.deb" Depends)"
}

# It has a network of its own, with nothing but this host's loopback.
with_systemd() {
  cat >"$root/etc/systemd/system/units.service" <<'UNIT'
[Unit]
After=basic.target
[Service]
ExecStart=/mnt/units.sh
[Install]
WantedBy=multi-user.target
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -s ../units.service "$root/etc/systemd/system/multi-user.target.wants/units.service"
  say "booting the root"
  timeout 600 systemd-nspawn --quiet --directory "$root" --register=no --keep-unit --private-network --bind "$given:/mnt" --boot \
    >"$work/log" 2>&1 </dev/null || true
  [ -f "$given/units.status" ] || { tail -n 20 "$work/log" >&2; fail "the root could not be booted"; }
  [ "$(cat "$given/units.status")" = 0 ] || { tail -n 40 "$given/units.log" >&2; fail "the services do not work"; }
  grep -hE 'times as fast|exposure level' "$given/units.log"
  same "with systemd"
}

if [ "${1:-}" = --in-namespace ]; then
  work=$2 root=$2/root given=$2/given
  without_systemd
  exit
fi
boot=1 package=
for word; do
  case $word in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --no-boot) boot=0 ;;
    -*) echo "clean_root: unknown option '$word' (see --help)" >&2; exit 2 ;;
    *) package=$word ;;
  esac
done
[ "$(id -u)" -eq 0 ] || fail "needs root"
for program in mmdebstrap unshare $([ $boot = 0 ] || echo systemd-nspawn); do
  command -v "$program" >/dev/null || fail "$program is missing (deploy/setup.sh --package-tests)"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/coppice.root.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
root=$work/root given=$work/given
mkdir "$given"
cp "$here/root_listing.sh" "$here/units.sh" "$given/"
if [ -z "$package" ]; then
  say "building the package"
  "$here/../../deploy/package.sh" "$work" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "the package cannot be built"; }
  package=$(tail -n 1 "$work/log")
fi
cp "$package" "$given/coppice.deb"

# shellcheck source=/dev/null
. /etc/os-release
# shellcheck disable=SC2016  # apt-get expands them
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT) # $(ORIGIN)' 'Created-By: Packages' |
  sed -n "s/ # ${ID^}\$//p" | sort -u >"$work/sources.list"
[ -s "$work/sources.list" ] || fail "this machine's apt has no mirror of $ID"
say "a minimal root of $ID $VERSION_CODENAME"
mmdebstrap --quiet --variant=minbase "$VERSION_CODENAME" "$root" - <"$work/sources.list"
unshare --mount --pid --fork --kill-child "$here/clean_root.sh" --in-namespace "$work"
[ $boot = 0 ] || with_systemd
