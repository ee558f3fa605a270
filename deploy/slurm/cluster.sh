#!/usr/bin/env bash
# sbatch [SLURM OPTIONS] deploy/slurm/cluster.sh --target DIR [--draft DIR|auto|none] [--tp T] [--replicas R] [--drafts D]
#        [--draft-in auto|worker|nodes] [--nodes-per-replica N] [--cpus N] [--backend cpu|cuda] [--dtype TYPE] [--port P]
#        [--control-port P] [--bin DIR] [--listen ADDRESS] [--address ADDRESS] [--cluster-key FILE|none] [--dry-run]
# A cluster in one Slurm allocation: a job step for the coordinator (on the first node), one for each replica of T ranks on N
# nodes, and one for each draft node. A head on hidden states (EAGLE-3, DFlash) runs in the leaders of the replicas unless --drafts
# asks for draft nodes; --draft-in says where any draft runs. --draft auto looks for one beside the target (docs/drafts.md). A
# replica that fails ends alone; the job ends with the coordinator, or with scancel. With --backend cuda each rank and draft node
# gets a GPU. --cpus are those of each rank and draft node (default: 1). The steps must fit the allocation, for example
#   sbatch --nodes=2 --gpus-per-node=4 --ntasks-per-node=5 deploy/slurm/cluster.sh --backend cuda --target T --draft D \
#          --tp 2 --replicas 3 --drafts 2
# (a task more on the first node, for the coordinator). Open MPI must have been built with PMIx, as Debian's is, and Slurm too.
# Submit from the root of the tree, which must be at the same place on all nodes, or install Coppice on them. --address is the first node's IPv4 address that
# the other nodes reach (default: what getent finds for its name). --dry-run prints the lines of the steps.
# The processes prove to each other that they have the cluster key, and encrypt what they send (docs/operating.md, "Security between
# nodes"). Each job makes a key of its own. A further step, `key`, keeps it on each node in a file that only you can read, below
# ${TMPDIR:-/tmp}, and removes it at the end. --cluster-key is for a key that you keep, at the same place on every node, and none for
# links without.
set -euo pipefail

declare -A option=([tp]=1 [replicas]=1 [draft-in]=auto [nodes-per-replica]=1 [cpus]=1 [backend]=cpu [dtype]=auto [port]=8000
  [control-port]=7000 [listen]=0.0.0.0)
usage() { echo "slurm/cluster.sh: $* (see --help)" >&2; exit 2; }
fail() { echo "slurm/cluster.sh: $*" >&2; exit 1; }
dry=0
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --dry-run) dry=1; shift ;;
    --target | --draft | --tp | --replicas | --drafts | --draft-in | --nodes-per-replica | --cpus | --backend | --dtype | --port | \
      --control-port | --bin | --listen | --address | --cluster-key)
      [ $# -ge 2 ] || usage "$1 needs a value"
      option[${1#--}]=$2
      shift 2 ;;
    *) usage "unknown option '$1'" ;;
  esac
done
for name in tp replicas drafts nodes-per-replica cpus port control-port; do
  [[ ${option[$name]-0} =~ ^[0-9]{1,9}$ ]] || usage "--$name must be a number, got '${option[$name]}'"
done
for name in tp replicas nodes-per-replica cpus; do [ "${option[$name]}" -ge 1 ] || usage "--$name must be at least 1"; done
[ -n "${option[target]:-}" ] || usage "needs --target DIR"
case ${option[draft-in]} in
  auto | nodes) ;;
  worker) [ -z "${option[drafts]-}" ] || usage "--draft-in: the draft is in the workers, but --drafts is ${option[drafts]}" ;;
  *) usage "--draft-in must be auto, worker or nodes, got '${option[draft-in]}'" ;;
esac
[ -n "${option[cluster-key]-made}" ] || usage "--cluster-key needs a file, or none"
case ${option[backend]} in cpu | cuda) ;; *) usage "--backend must be cpu or cuda, got '${option[backend]}'" ;; esac
[ $((option[tp] % option[nodes-per-replica])) -eq 0 ] || usage "--tp ${option[tp]} ranks do not divide over ${option[nodes-per-replica]} nodes"

# sbatch copies this script, so the tree is told by where the job was submitted, and an installation by its command.
root=${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
if [ ! -f "$root/deploy/environment.sh" ] && installed=$(command -v coppice); then
  root=$(dirname "$(dirname "$(readlink -f "$installed")")")
fi
[ -f "$root/deploy/environment.sh" ] || fail "$root: deploy/environment.sh is not there; submit from the root of the tree, or install Coppice on all nodes"
own_interfaces=${OMPI_MCA_btl_tcp_if_include+set}
# A replica over several nodes needs TCP. environment.sh has settings for one host, so its choice of interfaces is taken back.
[ "${option[nodes-per-replica]}" -eq 1 ] || export OMPI_MCA_btl="${OMPI_MCA_btl:-vader,self,tcp}"
# shellcheck source=deploy/environment.sh
. "$root/deploy/environment.sh"
[ "${option[nodes-per-replica]}" -eq 1 ] || [ -n "$own_interfaces" ] || unset OMPI_MCA_btl_tcp_if_include
bin=${option[bin]:-$coppice_bin}

# The draft, and where it runs: in the leaders of the replicas (in_workers), or on draft nodes.
draft='' kind='' in_workers=0
if [ -n "${option[draft]:-}" ] && [ "${option[drafts]-1}" -gt 0 ]; then
  chosen=$(python3 -B "$root/deploy/launch/draft_choice.py" --target "${option[target]}" --draft "${option[draft]}" --bin "$bin") ||
    fail "the draft could not be chosen"
  { IFS= read -r kind && IFS= read -r draft; } <<<"$chosen" || true
fi
if [ -z "$draft" ]; then
  option[drafts]=0
elif [ "${option[draft-in]}" = worker ] || { [ "${option[draft-in]}" = auto ] && [ "$kind" != model ] && [ -z "${option[drafts]-}" ]; }; then
  in_workers=1
fi
own_draft=() of_target=()
if [ $in_workers = 1 ]; then
  option[drafts]=0 own_draft=("--draft=$draft")
elif [ -n "$draft" ] && [ "$kind" != model ]; then
  own_draft=("--states_for=$draft") of_target=("--target=${option[target]}")
fi
option[drafts]=${option[drafts]-1}

if [ $dry = 1 ]; then
  first=FIRST_NODE address=${option[address]:-ADDRESS_OF_FIRST_NODE}
else
  [ -n "${SLURM_JOB_ID:-}" ] || fail "not in a Slurm job; submit it with sbatch, or see the lines of its steps with --dry-run"
  first=$SLURMD_NODENAME  # where Slurm runs the script of a batch job
  address=${option[address]:-$(getent ahostsv4 "$first" | awk '$1 !~ /^127\./ {print $1; exit}' || true)}
  [ -n "$address" ] || fail "getent finds no IPv4 address of $first that other nodes reach; give it with --address"
fi
control=tcp://$address:${option[control-port]}

# folder: where each node keeps the key of this job; empty: there is none, or it is the user's own.
folder='' key=()
case ${option[cluster-key]-} in
  none) ;;
  "")
    folder=KEY_FOLDER
    [ $dry = 1 ] || folder=$(mktemp -u "${TMPDIR:-/tmp}/coppice.$SLURM_JOB_ID.XXXXXXXXXX")
    key=("--cluster_key_file=$folder/cluster_key") ;;
  *)
    file=${option[cluster-key]}
    [[ $file = /* ]] || file=$PWD/$file
    [ $dry = 1 ] || [ -r "$file" ] || fail "--cluster-key $file: not a file that can be read on $first"
    key=("--cluster_key_file=$file") ;;
esac

steps=() keepers='' kept=''
show() { printf '%q ' "$@" | sed 's/ $//' && echo; }

# Gives each node the key of this job: a task there keeps it in a file until its standard input ends. The key passes through pipes
# and Slurm alone, so no command line, variable or log has it.
keep_key() {
  local nodes=${SLURM_JOB_NUM_NODES:-1} pipes line i said
  [ $dry = 0 ] || nodes=NODES_OF_JOB
  # It needs nothing that the other steps would have to wait for. A task that fails must not have the others killed: they would leave
  # the key.
  line=(srun --overlap --kill-on-bad-exit=0 --wait=0 --job-name=key "--nodes=$nodes" "--ntasks=$nodes" --ntasks-per-node=1
    --cpus-per-task=1 --mpi=none "$root/deploy/slurm/keep_key.sh" "$folder/cluster_key")
  if [ $dry = 1 ]; then
    show "${line[@]}"
    return
  fi
  pipes=$(mktemp -d)
  mkfifo "$pipes/key"
  exec {kept}< <(exec "${line[@]}" <"$pipes/key")
  exec {keepers}>"$pipes/key"
  rm -r "$pipes"
  # If srun has ended, what it said tells why.
  "$root/deploy/cluster_key.sh" - >&"$keepers" || { exec {keepers}>&- && keepers=''; }
  for ((i = 0; i < nodes;)); do
    IFS= read -r -t 60 -u "$kept" said || fail "only $i of $nodes nodes have said that they keep the cluster key"
    case $said in
      *"key kept"*) i=$((i + 1)) ;;
      *"key not kept"*) fail "$said. TMPDIR may name another place, or --cluster-key a key file of your own" ;;
    esac
  done
}

# Starts a step: $1 its name, then what follows `srun`.
step() {
  local name=$1
  shift
  # Without --mem=0 a step takes all memory that the job has on the node (sbatch --mem), and the next one waits for it.
  local line=(srun --exact --mem=0 --kill-on-bad-exit=1 "--job-name=$name" "--output=$name-%j.log" "$@")
  if [ $dry = 1 ]; then
    show "${line[@]}"
    return
  fi
  "${line[@]}" &
  steps+=($!)
}

each=("--cpus-per-task=${option[cpus]}")
compute=("--backend=${option[backend]}" "--dtype=${option[dtype]}" "--threads=${option[cpus]}")
per_node=$((option[tp] / option[nodes-per-replica]))
gpus_replica=() gpu_draft=() plan=()
if [ "${option[backend]}" = cuda ]; then
  # All GPUs of the step are visible to each of its ranks, which take the one of their place on the node.
  gpus_replica=("--gpus-per-node=$per_node" --gpu-bind=none) gpu_draft=(--gpus=1)
fi
[ "${option[nodes-per-replica]}" -eq 1 ] || plan=('--plan_listen=tcp://%ADDRESS%:*')

# shellcheck disable=SC2317  # reached through the trap
finish() {
  trap - EXIT
  trap '' TERM INT HUP
  [ ${#steps[@]} -eq 0 ] || kill "${steps[@]}" 2>/dev/null || true
  [ ${#steps[@]} -eq 0 ] || wait "${steps[@]}" || true
  # The nodes remove the key when the pipe ends; on this node also if the task was killed.
  [ -z "$keepers" ] || exec {keepers}>&-
  [ -z "$kept" ] || cat <&"$kept" >/dev/null
  [ -z "$folder" ] || rm -rf -- "$folder"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

[ -z "$folder" ] || keep_key
step coordinator --nodes=1 --ntasks=1 --cpus-per-task=1 "--nodelist=$first" "$bin/coppice-coordinator" "--listen=${option[listen]}:${option[port]}" \
  "--control_listen=$control" "--model=${option[target]}" "${key[@]}"
coordinator=${steps[0]:-}
for ((i = 0; i < option[replicas]; i++)); do
  step "replica-$i" "--nodes=${option[nodes-per-replica]}" "--ntasks=${option[tp]}" "--ntasks-per-node=$per_node" "${each[@]}" \
    "${gpus_replica[@]}" --mpi=pmix "$root/deploy/with_address.sh" "$address" "$bin/coppice-worker" "--coordinator=$control" \
    "--replica_id=replica-$i" "--tp=${option[tp]}" "--model=${option[target]}" "${compute[@]}" "${own_draft[@]}" "${plan[@]}" "${key[@]}"
done
for ((i = 0; i < option[drafts]; i++)); do
  step "draft-$i" --nodes=1 --ntasks=1 "${each[@]}" "${gpu_draft[@]}" --mpi=none "$root/deploy/with_address.sh" "$address" "$bin/coppice-draft" \
    "--coordinator=$control" "--node_id=draft-$i" "--model=$draft" "${of_target[@]}" "${compute[@]}" '--listen=direct://%ADDRESS%:*' "${key[@]}"
done
[ $dry = 0 ] || exit 0
echo "slurm/cluster.sh: HTTP at $first:${option[port]} ($address), logs in $PWD"
wait "$coordinator"
