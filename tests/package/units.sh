#!/usr/bin/env bash
# units.sh: what clean_root.sh runs in a root that systemd has booted. Below /mnt it finds the package and root_listing.sh, and there it
# leaves its log and exit status. Then it powers off.
set -euo pipefail
exec >/mnt/units.log 2>&1
trap 'echo $? >/mnt/units.status; systemctl poweroff' EXIT
set -x
units=(coppice-coordinator.service coppice-worker@1.service coppice-draft@1.service)
url=http://127.0.0.1:8000
restarts() { systemctl show -P NRestarts "$1"; }
wait_until() {
  local i
  for ((i = 0; i < 300; i++)); do
    ! "$@" || return 0
    sleep 0.2
  done
  journalctl -b --no-pager -u 'coppice*'
  return 1
}
ready() { python3 -B /usr/lib/coppice/deploy/cluster_state.py ready --url $url --replicas 1 --drafts 1; }
started_again() { [ "$(restarts coppice-worker@1)" -gt "$seen" ]; }
refused_lines() { journalctl -b --no-pager -u "$1" | grep -F nosuch; }
refused() { echo "units: $*"; exit 1; }

/mnt/root_listing.sh >/mnt/before
apt-get install -y --no-install-recommends /mnt/coppice.deb
getent passwd coppice
# Nothing starts until there is a configuration.
for unit in "${units[@]}"; do
  [ "$(systemctl is-enabled "$unit" || true)" = disabled ] || refused "$unit is enabled"
  systemctl start "$unit"
  [ "$(systemctl show -P ConditionResult "$unit")" = no ] || refused "$unit started without a configuration"
done
systemd-analyze verify --man=no "${units[@]}"
systemd-analyze security --no-pager --threshold=20 "${units[@]}"

mkdir /etc/coppice
cp /usr/share/doc/coppice/examples/cluster.toml /etc/coppice/
echo RANKS=2 >/etc/coppice/worker-1.env
systemctl enable --now "${units[@]}"
wait_until ready
[ "$(pgrep -u coppice -c coppice-worker)" = 2 ] || refused "the replica has not two ranks"
python3 -B /usr/lib/coppice/deploy/ask.py --repeats 1 /usr/share/coppice/demo/questions.jsonl
systemctl reload coppice-coordinator
# A coordinator that is restarted ends its nodes, which come back.
systemctl restart coppice-coordinator
wait_until ready
# A rank that dies takes its replica with it, which comes back.
seen=$(restarts coppice-worker@1)
pkill -KILL -o coppice-worker
wait_until started_again
wait_until ready
# A new version of the package restarts what runs.
before=$(systemctl show -P MainPID "${units[@]}")
apt-get install -y --reinstall --no-install-recommends /mnt/coppice.deb
wait_until ready
after=$(systemctl show -P MainPID "${units[@]}")
if comm -12 <(sort <<<"$before") <(sort <<<"$after") | grep -q .; then refused "a service runs the old programs"; fi
systemctl stop "${units[@]}"
for unit in "${units[@]}"; do
  [ "$(systemctl is-active "$unit" || true)" = inactive ] || refused "$unit: $(systemctl is-active "$unit")"
done
[ -z "$(pgrep -u coppice || true)" ] || refused "processes are left"
[ -z "$(find /run /dev/shm -name '*coppice*' -o -name '*vader*' -o -name '*ompi*')" ] || refused "files are left below /run or /dev/shm"
if journalctl -b --no-pager -u 'coppice*' | grep -E 'not permitted|denied' | grep -v 'energy is not measured'; then refused "something is not permitted"; fi
# A wrong configuration is told, and not tried again.
echo 'nosuch = 1' >>/etc/coppice/cluster.toml
systemctl start coppice-draft@1 || true
wait_until refused_lines coppice-draft@1
sleep 3
[ "$(restarts coppice-draft@1)" = 0 ] || refused "a wrong configuration was tried again"
sed -i '$d' /etc/coppice/cluster.toml
systemctl start "${units[@]}"
wait_until ready
apt-get purge -y coppice
[ -z "$(pgrep coppice || true)" ] || refused "processes are left after purge"
/mnt/root_listing.sh >/mnt/after
diff /mnt/before /mnt/after
