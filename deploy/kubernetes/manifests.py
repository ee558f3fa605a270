#!/usr/bin/env python3
"""Prints the Kubernetes objects of a cluster as one JSON list, for `kubectl apply -f -`: a Deployment and two Services for the
coordinator, a Deployment for the draft nodes, and for each replica an MPIJob (kubeflow.org/v2beta1: the MPI operator must be
installed).

  deploy/cluster_key.sh - | kubectl create secret generic coppice-cluster-key --from-file=cluster_key=/dev/stdin    # once
  manifests.py --image IMAGE --target DIR [--draft DIR [--draft-kind head]] [--claim NAME] [--tp T] [--replicas R] [--drafts D] | kubectl apply -f -

The models are in a PersistentVolumeClaim that is mounted at /models. The cluster key is in a Secret, in the namespace of the
objects; until it is there, pods wait for it (docs/hosts.md 6, also on how to exchange it). Images: deploy/docker. Uses only the
Python standard library.
"""
import argparse
import json
import re

PROGRAMS = "/opt/coppice/bin"
WITH_ADDRESS = "/opt/coppice/lib/coppice/deploy/with_address.sh"
HTTP_PORT, CONTROL_PORT, SSH_PORT = 8000, 7000, 2222
USER = 1000  # of the images
KEY_FOLDER = "/run/coppice"  # in the pods; the key of the cluster is below it
SECRET_FOLDER, SECRET_KEY = "/run/coppice-secret", "cluster_key"
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
SECRET_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--image", required=True, help="image of all processes")
    parser.add_argument("--target", required=True, help="folder of the target model, in the pods")
    parser.add_argument("--draft", help="folder of the draft, in the pods; without it, or with none, there are no draft nodes")
    parser.add_argument("--draft-kind", default="model", choices=("model", "head"), help="what the draft is: an independent model, or a head "
                        "on hidden states (EAGLE-3, DFlash) [%(default)s]")
    parser.add_argument("--draft-in", default="auto", choices=("auto", "worker", "nodes"), help="where it runs; auto: a head in the leaders of "
                        "the replicas unless --drafts asks for draft nodes, a model on draft nodes [%(default)s]")
    parser.add_argument("--name", default="coppice", help="prefix of the objects' names [%(default)s]")
    parser.add_argument("--namespace", help="of all objects; default: that of kubectl")
    parser.add_argument("--claim", default="models", help="PersistentVolumeClaim that is mounted at /models, read-only [%(default)s]")
    parser.add_argument("--cluster-key", metavar="SECRET", help="Secret whose entry cluster_key is the cluster's key; none: links between "
                        "nodes without [NAME-cluster-key]")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tp", type=int, default=1, help="ranks of a replica [%(default)s]")
    parser.add_argument("--ranks-per-pod", type=int, help="ranks of a pod, so also its GPUs; default: all of the replica")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--drafts", type=int, help="draft nodes [1, or none if the draft is in the leaders]")
    parser.add_argument("--cpus", type=int, default=2, help="cores of each rank and draft node, and their threads [%(default)s]")
    parser.add_argument("--memory", default="8Gi", help="memory of each rank and draft node [%(default)s]")
    parser.add_argument("--start-deadline", type=int, default=600, help="seconds for loading models and for the ranks to meet [%(default)s]")
    args = parser.parse_args()
    args.ranks_per_pod = args.ranks_per_pod or args.tp
    for name in ("tp", "ranks_per_pod", "replicas", "cpus", "start_deadline"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    place_draft(parser, args)
    if args.tp % args.ranks_per_pod:
        parser.error(f"--tp {args.tp} is not a multiple of --ranks-per-pod {args.ranks_per_pod}")
    if not NAME.fullmatch(args.name):
        parser.error(f"--name must be small letters, digits and '-', at most 40, got {args.name!r}")
    if args.cluster_key is None:
        args.cluster_key = f"{args.name}-cluster-key"
    if not SECRET_NAME.fullmatch(args.cluster_key):
        parser.error(f"--cluster-key must be the name of a Secret, or none, got {args.cluster_key!r}")
    if not re.fullmatch(r"[1-9]\d*(Mi|Gi|Ti)", args.memory):
        parser.error(f"--memory must be a number and Mi, Gi or Ti, got {args.memory!r}")
    return args


def place_draft(parser, args):
    """Fills in args.drafts, and args.own_draft: whether the leaders run the draft."""
    if args.drafts is not None and args.drafts < 0:
        parser.error(f"--drafts must not be negative, got {args.drafts}")
    if args.draft == "auto":
        parser.error("--draft auto: the folders are in the pods, where this program cannot look; name the draft's")
    if args.draft_in == "worker" and args.drafts is not None:
        parser.error(f"--draft-in: the draft is in the workers, but --drafts is {args.drafts}")
    args.draft = None if args.draft == "none" or args.drafts == 0 else args.draft
    args.own_draft = args.draft is not None and (
        args.draft_in == "worker" or (args.draft_in == "auto" and args.draft_kind == "head" and args.drafts is None))
    args.drafts = 0 if args.draft is None or args.own_draft else 1 if args.drafts is None else args.drafts


def amount(memory, times):
    return f"{int(memory[:-2]) * times}{memory[-2:]}"


def labels(args, part):
    return {"app.kubernetes.io/name": "coppice", "app.kubernetes.io/instance": args.name, "app.kubernetes.io/component": part}


def metadata(args, part, name):
    return {"name": name, "labels": labels(args, part), **({"namespace": args.namespace} if args.namespace else {})}


def resources(args, ranks, gpus):
    """Requests are limits: a rank that is throttled or evicted slows or ends its whole replica."""
    wanted = {"cpu": str(args.cpus * ranks), "memory": amount(args.memory, ranks),
              **({"nvidia.com/gpu": str(gpus)} if gpus and args.backend == "cuda" else {})}
    return {"requests": wanted, "limits": wanted}


def container(args, name, command, **fields):
    return {"name": name, "image": args.image, "command": command,
            "securityContext": {"runAsUser": USER, "allowPrivilegeEscalation": False},
            "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}], **fields}


def has_key(args):
    return args.cluster_key != "none"


def key_flags(args):
    return [f"--cluster_key_file={KEY_FOLDER}/{SECRET_KEY}"] if has_key(args) else []


def keep_key(args, one):
    """Gives the container the key. Returns what the pod has for it: containers that run before, and volumes.

    The files of a Secret belong to root, and to be read by the images' user they must be readable by others too. Such a key is
    refused. So a container that alone sees the Secret writes the key to a file of that user, in memory, which nobody else reads."""
    if not has_key(args):
        return [], []
    one["volumeMounts"].append({"name": "key", "mountPath": KEY_FOLDER, "readOnly": True})
    little = {"cpu": "100m", "memory": "64Mi"}
    first = {"name": "key", "image": args.image,
             "command": ["install", "-m", "600", f"{SECRET_FOLDER}/{SECRET_KEY}", f"{KEY_FOLDER}/{SECRET_KEY}"],
             "securityContext": {"runAsUser": USER, "allowPrivilegeEscalation": False},
             "volumeMounts": [{"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True}, {"name": "key", "mountPath": KEY_FOLDER}],
             "resources": {"requests": little, "limits": little}}
    return [first], [{"name": "secret", "secret": {"secretName": args.cluster_key, "items": [{"key": SECRET_KEY, "path": SECRET_KEY}],
                                                   "defaultMode": 0o444}},
                     {"name": "key", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]


def pod(args, one, grace_s=35, memory=False, key=True):
    """memory: shared memory for MPI and NCCL, which the default of 64 MiB is too small for. key: its programs read the key."""
    before, key_volumes = keep_key(args, one) if key else ([], [])
    volumes = [{"name": "models", "persistentVolumeClaim": {"claimName": args.claim, "readOnly": True}}]
    if memory:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}})
        one["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    return {**({"initContainers": before} if before else {}), "containers": [one], "volumes": volumes + key_volumes,
            "terminationGracePeriodSeconds": grace_s, "automountServiceAccountToken": False}


def probe(seconds, failures, **check):
    return {**check, "periodSeconds": seconds, "failureThreshold": failures, "timeoutSeconds": 5}


def deployment(args, part, replicas, template):
    selector = labels(args, part)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(args, part, f"{args.name}-{part}"),
            "spec": {"replicas": replicas, "selector": {"matchLabels": selector}, "strategy": {"type": "Recreate"},
                     "template": {"metadata": {"labels": selector}, "spec": template}}}


def coordinator(args):
    alive = {"httpGet": {"path": "/health", "port": HTTP_PORT}}
    one = container(
        args, "coordinator",
        [f"{PROGRAMS}/coppice-coordinator", f"--listen=0.0.0.0:{HTTP_PORT}", f"--control_listen=tcp://0.0.0.0:{CONTROL_PORT}", f"--model={args.target}",
         *key_flags(args)],
        ports=[{"name": "http", "containerPort": HTTP_PORT}, {"name": "control", "containerPort": CONTROL_PORT}],
        resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        startupProbe=probe(2, 60, **alive), livenessProbe=probe(10, 3, **alive),
        readinessProbe=probe(5, 1, httpGet={"path": "/ready", "port": HTTP_PORT}))
    return deployment(args, "coordinator", 1, pod(args, one, grace_s=40))  # 30 s for running requests (--drain_timeout), and the end


def services(args):
    """HTTP for clients: only while a replica is ready. Control for nodes: always, since without them nothing gets ready."""
    for name, port, always in (("http", HTTP_PORT, False), ("control", CONTROL_PORT, True)):
        yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata(args, "coordinator", f"{args.name}-{name}"),
               "spec": {"selector": labels(args, "coordinator"), "publishNotReadyAddresses": always,
                        "ports": [{"name": name, "port": port, "targetPort": name}]}}


def node_flags(args, model):
    return [f"--coordinator=tcp://{args.name}-control:{CONTROL_PORT}", f"--model={model}", f"--backend={args.backend}", f"--dtype={args.dtype}",
            f"--threads={args.cpus}", f"--start_deadline={args.start_deadline}", *key_flags(args)]


def draft_flags(args):
    """Of the ranks of a replica: the draft that the leader runs, or for which it sends hidden states to draft nodes."""
    if args.draft is None:
        return []
    return [f"--draft={args.draft}"] if args.own_draft else [f"--states_for={args.draft}"] if args.draft_kind == "head" else []


def drafts(args):
    # A draft node ends by itself when it hangs, and the pod starts it again. So there is no probe that could do worse.
    one = container(
        args, "draft",
        [WITH_ADDRESS, f"{args.name}-control", f"{PROGRAMS}/coppice-draft", *node_flags(args, args.draft),
         *([f"--target={args.target}"] if args.draft_kind == "head" else []), "--node_id=$(POD_NAME)",
         "--listen=direct://%ADDRESS%:*"],
        env=[{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], resources=resources(args, 1, 1))
    return deployment(args, "draft", args.drafts, pod(args, one, grace_s=10))


def replica(args, i):
    """The launcher runs mpirun, which starts the ranks in the worker pods by ssh; the operator makes keys and host file."""
    name = f"{args.name}-replica-{i}"
    pods = args.tp // args.ranks_per_pod
    mpi = {"OMPI_MCA_btl": "vader,self,tcp" if pods > 1 else "vader,self", "OMPI_MCA_hwloc_base_binding_policy": "none",
           "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
           "OMPI_MCA_odls_base_sigkill_timeout": "0", "OMPI_MCA_oob_tcp_keepalive_time": "10", "OMPI_MCA_oob_tcp_keepalive_intvl": "2",
           "OMPI_MCA_oob_tcp_keepalive_probes": "3", "OMP_WAIT_POLICY": "passive"}
    launcher = container(
        args, "launcher",
        ["mpirun", "-q", "-np", str(args.tp), "-x", "OMP_WAIT_POLICY", WITH_ADDRESS, f"{args.name}-control", f"{PROGRAMS}/coppice-worker",
         *node_flags(args, args.target), *draft_flags(args), f"--replica_id=replica-{i}", f"--tp={args.tp}", "--plan_listen=tcp://%ADDRESS%:*"],
        env=[{"name": key, "value": value} for key, value in mpi.items()],
        resources={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}})
    worker = container(args, "worker", ["/usr/sbin/sshd", "-De", "-f", "/opt/coppice/sshd_config"],
                       ports=[{"name": "ssh", "containerPort": SSH_PORT}], resources=resources(args, args.ranks_per_pod, args.ranks_per_pod),
                       readinessProbe=probe(2, 3, tcpSocket={"port": SSH_PORT}))
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata(args, "replica", name),
            "spec": {"slotsPerWorker": args.ranks_per_pod, "sshAuthMountPath": "/home/coppice/.ssh", "mpiImplementation": "OpenMPI",
                     "launcherCreationPolicy": "WaitForWorkersReady",
                     # A replica that ends is started again, with new ranks: mpirun's status is what the operator sees.
                     "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 100},
                     "mpiReplicaSpecs": {
                         "Launcher": {"replicas": 1, "restartPolicy": "OnFailure",
                                      "template": {"metadata": {"labels": labels(args, "replica")}, "spec": pod(args, launcher, grace_s=10, key=False)}},
                         "Worker": {"replicas": pods, "restartPolicy": "OnFailure",
                                    "template": {"metadata": {"labels": labels(args, "replica")},
                                                 "spec": pod(args, worker, grace_s=10, memory=True)}}}}}


def main():
    args = parse()
    items = [coordinator(args), *services(args), *([drafts(args)] if args.drafts else []),
             *(replica(args, i) for i in range(args.replicas))]
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))


if __name__ == "__main__":
    main()
