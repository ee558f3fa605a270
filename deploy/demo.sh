#!/usr/bin/env bash
# demo.sh [--model text2sql|smollm2|FILE.gguf] [--once] [--tour] [--port N] [--no-build]
# Starts a cluster under one mpirun: a coordinator, a target replica and a draft node, with the model pair in deploy/demo. Asks it
# the questions in deploy/demo with one beam and with four, each with drafts and without, and prints the answers and a table of the
# times. Then serves at http://127.0.0.1:8000 until Ctrl-C. In a source tree it first installs what is missing and builds, unless
# --no-build is given.
# --once: exits after the questions, non-zero if anything failed. --tour: asks the questions with every verification method and
# prints one line for each. --model smollm2: chats, with a model that models.sh fetches (93 MB); in a terminal you can then chat
# with it. Where there is no network, the pair of deploy/demo is used and the demo says so. --model FILE.gguf: chats with a model
# of your own, which models.sh converts; it must have a chat template.
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

once=0 port=8000 build=1 tour=() model=text2sql
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=1; shift ;;
    --tour) tour=(--tour); shift ;;
    --port) port=${2:-}; shift; [ $# -eq 0 ] || shift ;;
    --port=*) port=${1#*=}; shift ;;
    --model) model=${2:-}; shift; [ $# -eq 0 ] || shift ;;
    --model=*) model=${1#*=}; shift ;;
    --no-build) build=0; shift ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "demo: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
done
if ! [[ $port =~ ^[0-9]+$ ]] || [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then
  echo "demo: --port must be between 1 and 65535, got '$port'" >&2
  exit 2
fi
case $model in
  text2sql | smollm2) ;;
  *.gguf)
    [[ $model == /* ]] || model=$from/$model
    [ -f "$model" ] || { echo "demo: --model $model: no such file" >&2; exit 2; } ;;
  *) echo "demo: --model must be text2sql, smollm2 or a file FILE.gguf, got '$model'" >&2; exit 2 ;;
esac
if [ "$model" != text2sql ] && [ ${#tour[@]} -gt 0 ]; then
  echo "demo: --tour asks the questions of the text2sql pair, not of $model" >&2
  exit 2
fi

# Another cluster at the port would answer in place of this one.
check_port() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "demo: port $port is in use; give another with --port" >&2
    exit 1
  fi
}

check_port
# shellcheck source=deploy/environment.sh
. deploy/environment.sh
missing="run without --no-build"
if [ "$coppice_installed" = 1 ]; then
  missing="the installation is not whole"
elif [ $build = 1 ]; then
  deploy/setup.sh
  deploy/build.sh release coppice-coordinator coppice-worker coppice-draft
fi
for role in coordinator worker draft; do
  [ -x "$coppice_bin/coppice-$role" ] || { echo "demo: $coppice_bin/coppice-$role is missing; $missing" >&2; exit 1; }
done
coppice_make_run_folders
log=${coppice_run_folders[0]}/cluster.log
url=http://127.0.0.1:$port
session=

# shellcheck disable=SC2317  # reached through the trap
finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  if [ -n "$session" ]; then
    coppice_end_sessions 2 "$session"  # sends one SIGTERM: after a second one, mpirun would skip its clean-up
    wait "$session" 2>/dev/null || true
  fi
  rm -rf "${coppice_run_folders[@]}"
  exit "$status"
}
trap finish EXIT
trap 'echo; echo "demo: stopping"; exit 130' INT
trap 'exit 143' TERM HUP

target=deploy/demo/wikisql-target draft=deploy/demo/wikisql-draft
if [ "$model" != text2sql ]; then
  fetched=${coppice_run_folders[0]}/model status=0
  if [[ $model == *.gguf ]]; then
    echo "target: $model" >"$fetched"
  else
    deploy/models.sh get "$model" | tee "$fetched" || status=$?
  fi
  case $status in
    0)
      target=$(sed -n 's/^target: //p' "$fetched") draft=$(sed -n 's/^draft: //p' "$fetched") ;;
    3)
      echo "demo: $model cannot be fetched here (see above); the embedded text2sql pair is used instead"
      model=text2sql ;;
    *) exit 1 ;;
  esac
fi
drafts=0 draft_node=() draft_weights=auto
[ "$model" = text2sql ] || draft_weights=int4  # a level of such a draft is bound by the memory that it reads
[ -z "$draft" ] || drafts=1
threads=$(coppice_threads 1)  # target and draft take turns
if [ "$model" = text2sql ] && [ "$threads" -gt 2 ]; then threads=2; fi  # its products are too small for more
if [ $drafts = 1 ]; then
  draft_node=(: -np 1 "$coppice_bin/coppice-draft" --model="$draft" --dtype=auto --weight_dtype="$draft_weights"
    --threads="$threads")
fi
check_port  # again: to build or to fetch a model may have taken minutes
# On a busy machine a draft may be late; without it, the demo would show nothing for a second.
# mpirun gets its own session, so Ctrl-C reaches only this script. The script then ends mpirun.
setsid setpriv --pdeathsig TERM mpirun -q \
  -np 1 "$coppice_bin/coppice-coordinator" --listen="127.0.0.1:$port" --model="$target" --served_model_name="$(basename "$model" .gguf)" : \
  -np 1 "$coppice_bin/coppice-worker" --model="$target" --dtype=auto --threads="$threads" --draft_deadline_min=0.5 \
  "${draft_node[@]}" >"$log" 2>&1 </dev/null &
session=$!

patience=60
[[ $model != *.gguf ]] || patience=600  # such a file may be of any size
wait_ready() {
  local started=$SECONDS reason last=
  until reason=$(python3 -B deploy/cluster_state.py ready --url "$url" --replicas 1 --drafts $drafts); do
    if ! kill -0 "$session" 2>/dev/null; then
      echo "demo: the cluster ended before it was ready:" >&2
      coppice_reasons "$log" >&2 || tail -n 20 "$log" >&2
      return 1
    fi
    if [ $((SECONDS - started)) -ge "$patience" ]; then
      echo "demo: not ready after $patience s: $reason" >&2
      tail -n 20 "$log" >&2
      return 1
    fi
    [ "$reason" = "$last" ] || echo "demo: waiting: $reason"
    last=$reason
    sleep 0.2
  done
  echo "demo: ready at $url"
}

curl=curl  # as the user is to type it
[ -z "${http_proxy:-}${all_proxy:-}${ALL_PROXY:-}" ] || curl="curl --noproxy '*'"

wait_for_the_end() {
  local status=0
  wait "$session" || status=$?
  session=
  echo "demo: the cluster ended by itself with status $status:" >&2
  coppice_reasons "$log" >&2 || tail -n 20 "$log" >&2
  exit 1
}

echo "demo: starting 1 coordinator, target ranks: 1, draft nodes: $drafts (threads: $threads, log: $log)"
wait_ready
if [ "$model" != text2sql ]; then
  python3 -B deploy/chat.py --url "$url" deploy/demo/chat.jsonl
  [ $once = 0 ] || exit 0
  echo
  echo "Serving at $url until Ctrl-C: open it in a browser, or use any OpenAI client. Try:"
  echo "  $curl $url/v1/chat/completions -H 'Content-Type: application/json' -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is a coppice?\"}]}'"
  if [ -t 0 ]; then
    echo "Or chat here; an empty line begins a new conversation, Ctrl-D ends the demo."
    python3 -B deploy/chat.py --url "$url"
    exit 0
  fi
  wait_for_the_end
fi
python3 -B deploy/ask.py --url "$url" "${tour[@]}" deploy/demo/questions.jsonl
[ $once = 0 ] || exit 0

cat <<TEXT

Serving at $url until Ctrl-C: open it in a browser. Or try:
  $curl $url/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "columns: city, country\nquestion: Which city is in Peru?\nsql:", "use_beam_search": true, "n": 4}'
TEXT
wait_for_the_end
