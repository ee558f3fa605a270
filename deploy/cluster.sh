#!/usr/bin/env bash
# cluster.sh up --target DIR [--draft DIR] [--tp T] [--replicas R] [--drafts D] [--port P] [--dtype auto|f32|bf16|f16]
#               [--kv-bytes N] [--draft-kv-bytes N] [--threads N] [--name NAME] [--deadline SECONDS] [--state DIR]
#               [--stuck-after SECONDS] [--backend cpu|cuda] [--communicator auto|nccl|oneshot|host] [--preset NAME]
#               [--tuning-cache DIR] [--chat-template FILE|FAMILY|none] [--cluster-key FILE|none]
# cluster.sh down [--port P | --state DIR]
# cluster.sh status [--port P | --state DIR]
# up starts a cluster of your own models on this host, in the background: a coordinator, R replicas of T ranks (each has
# its own mpirun, so a failure stays in its replica) and D draft nodes (none without --draft). It returns 0 when all are
# ready. Otherwise it stops everything, says why and returns non-zero. down stops the cluster. status exits 0 if it is ready.
# --backend says where replicas and draft nodes compute. cuda needs a CUDA build: --preset cuda uses the programs of
# build/cuda (default: release, or $COPPICE_BIN). CUDA_VISIBLE_DEVICES selects the devices of a process. --communicator says how the
# GPUs of a replica form sums (default: by NCCL where each has it and a GPU of its own, else through the host).
# --tuning-cache keeps what was measured on it; "": nothing is measured (docs/operating.md, "On a GPU"). --chat-template is for a model
# without a chat template of its own (docs/operating.md).
# The processes prove to each other that they have the cluster key, and encrypt what they send (docs/operating.md, "Security between
# nodes"). up makes a new key for each cluster; --cluster-key is for one that you keep, and none for links without.
# If a replica or draft node hangs, its processes end and it stays down. status names it; its log says why.
# Logs and process ids are in ${XDG_STATE_HOME:-~/.local/state}/coppice/PORT.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { echo "cluster: $*" >&2; exit 1; }
usage() { echo "cluster: $* (see --help)" >&2; exit 2; }

command=${1:-}
case $command in
  up | down | status) shift ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) usage "expected up, down or status, got '$command'" ;;
esac

declare -A option=([tp]=1 [replicas]=1 [drafts]=1 [port]=8000 [dtype]=auto [deadline]=120 [backend]=cpu)
while [ $# -gt 0 ]; do
  [[ $1 == --* ]] || usage "unexpected argument '$1'"
  name=${1#--}
  if [[ $name == *=* ]]; then
    value=${name#*=} name=${name%%=*}
    shift
  else
    [ $# -ge 2 ] || usage "--$name needs a value"
    value=$2
    shift 2
  fi
  case $command:$name in
    *:port | *:state) ;;
    up:target | up:draft | up:tp | up:replicas | up:drafts | up:dtype | up:kv-bytes | up:draft-kv-bytes | up:threads | up:name | up:deadline | up:stuck-after | up:backend | up:communicator | up:preset | up:tuning-cache | up:chat-template | up:cluster-key) ;;
    *) usage "unknown option --$name of $command" ;;
  esac
  option[$name]=$value
done
for name in tp replicas drafts port deadline stuck-after kv-bytes draft-kv-bytes threads; do
  value=${option[$name]:-}
  [ -z "$value" ] || [[ $value =~ ^[0-9]{1,18}$ ]] || usage "--$name must be a number, got '$value'"
done
for name in tp replicas; do [ "${option[$name]}" -ge 1 ] || usage "--$name must be at least 1"; done
case ${option[communicator]:-auto} in auto | nccl | oneshot | host) ;; *) usage "--communicator must be auto, nccl, oneshot or host, got '${option[communicator]}'" ;; esac
case ${option[backend]} in cpu | cuda) ;; *) usage "--backend must be cpu or cuda, got '${option[backend]}'" ;; esac
port=${option[port]}
if [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then usage "--port must be between 1 and 65535, got $port"; fi
state=${option[state]:-${XDG_STATE_HOME:-$HOME/.local/state}/coppice/$port}
url=http://127.0.0.1:$port
[ ! -f "$state/url" ] || url=$(cat "$state/url")

# shellcheck source=deploy/environment.sh
. "$here/environment.sh"
[ -z "${option[preset]:-}" ] || coppice_bin=$coppice_root/build/${option[preset]}/bin

# The start time of process $1, in clock ticks since boot. It tells a process from a later one with the same id.
started_at() {
  local line
  { IFS= read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra line <<<"${line##*) }"
  [ "${line[0]}" != Z ] && echo "${line[19]}"
}

# Prints a line "name pid" for each process of $state/processes ("name pid start") that still runs.
running() {
  local name pid start
  while read -r name pid start; do
    if [ "$(started_at "$pid" || true)" = "$start" ]; then echo "$name $pid"; fi
  done <"$state/processes"
}

# Starts the command "$2..." in a new session. Its name is $1, and its output goes to $1.log.
start() {
  local name=$1
  shift
  setsid "$@" >"$state/$name.log" 2>&1 </dev/null &
  echo "$name $! $(started_at $! || echo 0)" >>"$state/processes"
  disown $!
}

end_all() {
  local sessions folders
  mapfile -t sessions < <(awk '{print $2}' "$state/processes")
  coppice_end_sessions 3 "${sessions[@]}"
  if [ -f "$state/folders" ]; then
    mapfile -t folders <"$state/folders"
    rm -rf "${folders[@]}"
  fi
  rm -rf "$state"
}

up() {
  local target=${option[target]:-} draft=${option[draft]:-} drafts=${option[drafts]} folder
  [ -n "$target" ] || usage "up needs --target DIR"
  [ -n "$draft" ] || drafts=0
  for folder in "$target" ${draft:+"$draft"}; do
    [ -d "$folder" ] || fail "$folder: no such folder; expected a Hugging Face model folder with config.json and model.safetensors"
  done
  for name in coppice-coordinator coppice-worker coppice-draft; do
    [ -x "$coppice_bin/$name" ] || fail "$coppice_bin/$name is missing; run deploy/setup.sh and deploy/build.sh${option[preset]:+ ${option[preset]}} first"
  done
  if [ -f "$state/processes" ]; then
    [ -z "$(running)" ] || fail "a cluster with its state in $state is already up; end it with: cluster.sh down --port $port"
    end_all
  fi
  target=$(cd "$target" && pwd)
  [ -z "$draft" ] || draft=$(cd "$draft" && pwd)

  mkdir -p "$state"
  : >"$state/processes"
  trap 'end_all' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  coppice_make_run_folders
  printf '%s\n' "${coppice_run_folders[@]}" >"$state/folders"
  echo "$url" >"$state/url"
  local control threads i key=${option[cluster-key]:-$state/cluster_key}
  case ${option[cluster-key]-} in
    '') rm -f "$key"; "$here/cluster_key.sh" "$key" ;;
    none) key= ;;
  esac
  local with_key=(${key:+"--cluster_key_file=$key"})
  control=tcp://127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  threads=${option[threads]:-$(coppice_threads $((option[replicas] * option[tp])))}

  echo "cluster: starting 1 coordinator, ${option[replicas]} replica(s) of ${option[tp]} rank(s), $drafts draft node(s)"
  start coordinator "$coppice_bin/coppice-coordinator" --listen="127.0.0.1:$port" --control_listen="$control" \
    --model="$target" ${option[name]:+--served_model_name="${option[name]}"} \
    ${option[stuck-after]:+--stuck_after="${option[stuck-after]}"} ${option[chat-template]:+--chat_template="${option[chat-template]}"} "${with_key[@]}"
  for ((i = 0; i < option[replicas]; i++)); do
    # Each mpirun gets its own session folder. Two that start at once would race to create a shared one, and one would fail.
    mkdir "${coppice_run_folders[0]}/replica-$i"
    start "replica-$i" env "OMPI_MCA_orte_tmpdir_base=${coppice_run_folders[0]}/replica-$i" mpirun -q -np "${option[tp]}" "$coppice_bin/coppice-worker" --coordinator="$control" \
      --replica_id="replica-$i" --tp="${option[tp]}" --model="$target" --backend="${option[backend]}" --dtype="${option[dtype]}" --threads="$threads" \
      ${option[communicator]:+--communicator="${option[communicator]}"} ${option[kv-bytes]:+--kv_bytes="${option[kv-bytes]}"} \
      ${option[tuning-cache]+--tuning_cache="${option[tuning-cache]}"} "${with_key[@]}"
  done
  for ((i = 0; i < drafts; i++)); do
    start "draft-$i" "$coppice_bin/coppice-draft" --coordinator="$control" --node_id="draft-$i" --model="$draft" \
      --backend="${option[backend]}" --dtype="${option[dtype]}" --threads="$threads" ${option[draft-kv-bytes]:+--kv_bytes="${option[draft-kv-bytes]}"} \
      ${option[tuning-cache]+--tuning_cache="${option[tuning-cache]}"} "${with_key[@]}"
  done
  wait_ready "$drafts"
  trap - EXIT
  echo "cluster: ready at $url, logs in $state"
}

# Waits until the replicas and $1 draft nodes are ready. If a process ends first, prints its reason and fails.
wait_ready() {
  local expected begun=$SECONDS reason last='' name pid start
  expected=$(wc -l <"$state/processes")
  while :; do
    if [ "$(running | wc -l)" -lt "$expected" ]; then
      sleep 0.3  # the others may be about to say why
      while read -r name pid start; do
        [ "$(started_at "$pid" || true)" = "$start" ] && continue
        echo "cluster: $name ended before the cluster was ready:" >&2
        coppice_reasons "$state/$name.log" >&2 || tail -n 20 "$state/$name.log" >&2
      done <"$state/processes"
      exit 1
    fi
    reason=$(python3 "$here/cluster_state.py" ready --url "$url" --replicas "${option[replicas]}" --drafts "$1") && return 0
    if [ $((SECONDS - begun)) -ge "${option[deadline]}" ]; then
      echo "cluster: not ready after ${option[deadline]} s: $reason" >&2
      coppice_reasons "$state"/*.log >&2 || true
      exit 1
    fi
    [ "$reason" = "$last" ] || echo "cluster: waiting: $reason"
    last=$reason
    sleep 0.2
  done
}

down() {
  [ -f "$state/processes" ] || fail "no cluster with its state in $state"
  end_all
  echo "cluster: down"
}

status() {
  [ -f "$state/processes" ] || fail "no cluster with its state in $state"
  local name pid start
  while read -r name pid start; do
    if [ "$(started_at "$pid" || true)" = "$start" ]; then
      echo "$name: running, pid $pid, log $state/$name.log"
    else
      echo "$name: ended, log $state/$name.log"
    fi
  done <"$state/processes"
  python3 "$here/cluster_state.py" show --url "$url"
}

"$command"
