#!/usr/bin/env bash
# cluster.sh up --target DIR [--draft DIR|auto|none] [--tp T] [--replicas R] [--drafts D] [--port P] [--dtype auto|f32|bf16|f16]
#               [--draft-in auto|worker|nodes] [--draft-kind auto|model|head] [--kv-dtype auto|int8] [--kv-bytes N] [--draft-kv-bytes N]
#               [--threads N] [--name NAME] [--deadline SECONDS] [--state DIR]
#               [--stuck-after SECONDS] [--backend cpu|cuda] [--gpus LIST] [--communicator auto|shm|mpi|nccl|oneshot|host] [--exact]
#               [--preset NAME] [--bin DIR] [--tuning-cache DIR] [--chat-template FILE|FAMILY|none] [--cluster-key FILE|none]
#               [--hostfile FILE] [--agent COMMAND] [--api-key KEY] [--dry-run] [-- FLAG...]
# cluster.sh up --cluster FILE [--deadline SECONDS] [--state DIR] [--agent COMMAND] [--preset NAME] [--api-key KEY] [--dry-run] [-- FLAG...]
# cluster.sh down [--port P | --state DIR] [--forget]
# cluster.sh status [--port P | --state DIR]
# DIR is a Hugging Face folder, or a file FILE.gguf.
# up starts a cluster of your own models in the background: a coordinator, R replicas of T ranks (each has its own mpirun, so
# a failure stays in its replica) and D draft nodes. Before that it says what the target is; a model that cannot be served, or a
# draft that was named and does not fit, is refused. It returns 0 when all are ready. Otherwise it stops everything, says
# why and returns non-zero. --dry-run prints the lines that would start, and starts nothing.
# --draft auto, the default on one host, looks for a draft beside the target (T-draft, T-eagle3, T-dflash, draft, a head that fits, a
# much smaller model of the same vocabulary) and among the models of models.sh, says what it takes, and fetches nothing; without a
# draft, drafts are taken from what repeats in the text. --draft none does not look. An EAGLE-3 head or a DFlash drafter runs in the
# process of each replica's leader, unless --drafts D asks for draft nodes; other drafts on one draft node. --draft-in says where any
# draft runs, --draft-kind what one is that this host does not have (docs/drafts.md).
# down stops the cluster. down --forget gives up a host that is gone for good.
# status shows the processes and nodes of the cluster. It exits 0 if the cluster is ready.
# Without --hostfile or --cluster everything is on this host. --hostfile names the hosts, a line for each: NAME [gpus=N|LIST]
# [slots=N] [cores=N] [address=IP]. --cluster is a file that also says what runs where (docs/hosts.md, deploy/examples). On other
# hosts processes are started by --agent, called as ssh is (default: ssh -o BatchMode=yes -o ConnectTimeout=10).
# --backend says where replicas and draft nodes compute. cuda needs a CUDA build: --preset cuda uses the programs of
# build/cuda (default: release, or $COPPICE_BIN; --bin DIR: those of a folder). Each rank and draft node gets GPUs of its own, of
# --gpus (default: CUDA_VISIBLE_DEVICES, or all of this host). If none is left for a draft node, the leader of each replica runs the
# draft in its own process; if there are some but too few, draft nodes share one. --communicator says
# how the ranks of a replica form sums (default: GPUs by NCCL where each has it and a GPU of its own, else through the host; CPUs
# through shared memory on one host, else by MPI). --exact: on GPUs too, a request's tokens do not depend on what else is computed.
# --tuning-cache keeps what was measured on it; "": nothing is measured (docs/operating.md, "On a GPU"). --chat-template is for a
# model without a chat template of its own (docs/api.md 2.3).
# The processes prove to each other that they have the cluster key, and encrypt what they send (docs/operating.md, "Security between
# nodes"). up makes a new key for each cluster; --cluster-key is for one that you keep, at the same place on every host, and none
# for links without.
# What comes after -- are flags of coppice-coordinator (docs/flags.md): -- --listen=0.0.0.0:8000 --api_keys_file=keys --max_queue=64.
# --api-key is the key of the API's users, of 16 or more characters. up keeps it in a file that only you can read, api_keys beside the
# logs. While up runs, others on this host can see its command line; a file of keys after -- avoids that.
# If a replica or draft node hangs, its processes end and it stays down. status names it; its log says why.
# The logs of an up that failed are in PORT.failed.
# Logs and process ids are in ${XDG_STATE_HOME:-~/.local/state}/coppice/PORT.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for word; do
  case $word in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  esac
done
exec python3 -B "$here/launch/cluster.py" "$@"
