"""Turns a Cluster into the processes that make it up: on which host, with which variables, with which command line."""
import collections
import dataclasses
import ipaddress
import pathlib
import shlex

from description import DescriptionError, is_local, url_of
from placement import gpu_memory

CONTROL_PORT = 7000
WITH_ADDRESS = pathlib.Path(__file__).resolve().parents[1] / "with_address.sh"


@dataclasses.dataclass(frozen=True)
class Process:
    name: str
    host: str                   # where it is started
    environment: dict[str, str]
    arguments: tuple[str, ...]
    hosts: tuple[str, ...]      # on which it has processes: a replica may have ranks on several

    def line(self):
        """What starts it, for a shell."""
        return shlex.join(["env", *(f"{name}={value}" for name, value in self.environment.items()), *self.arguments])


@dataclasses.dataclass(frozen=True)
class Launch:
    """Where things are on every host of this start of a cluster."""
    id: str          # marks every process that belongs to it
    bin: str         # folder of the programs
    run: str         # folder for MPI's files
    shm: str         # folder for shared memory; "": none
    agent: str       # command that runs a command line on a host, such as ssh
    control_port: int


def shared_flags(cluster):
    """Flags that every process of the cluster gets, whatever its role: the place for what all must agree on."""
    key = cluster.settings["cluster_key"]
    return [*flag("cluster_key_file", None if key == "none" else key), *cluster.flags["all"]]


def flag(name, value):
    return [] if value is None else [f"--{name}={value}"]


def control_endpoint(cluster, launch):
    return f"tcp://{cluster.coordinator.address}:{launch.control_port}"


def threads_of(cluster):
    """{host: threads of each process, or None for all cores}: the cores are shared by the target ranks of a host, since
    drafts and ranks take turns; on a host without ranks by its draft nodes."""
    ranks, drafts = collections.Counter(), collections.Counter()
    for parts in cluster.replicas:
        for part in parts:
            ranks[part.host.name] += part.ranks
    for part in cluster.drafts:
        drafts[part.host.name] += 1
    threads = {}
    for host in cluster.hosts:
        sharing = ranks[host.name] or drafts[host.name]
        if cluster.settings["threads"] is not None:
            threads[host.name] = cluster.settings["threads"]
        elif host.cores is not None and sharing:
            threads[host.name] = max(1, host.cores // sharing)
        elif sharing > 1 and cluster.settings["backend"] == "cpu":
            raise DescriptionError(f"host {host.name}: cores is not given, and {sharing} processes share them: give cores, or threads")
        else:
            threads[host.name] = None
    return threads


def compute_flags(cluster, host, threads):
    settings = cluster.settings
    return [f"--backend={settings['backend']}", f"--dtype={settings['dtype']}", *flag("kv_dtype", settings["kv_dtype"]),
            *flag("threads", threads[host.name]),
            *flag("tuning_cache", settings["tuning_cache"])]


def memory_flags(cluster, parts):
    """Of a replica: the size of its pools if it is given, else the share of its GPUs' memory where draft nodes use them, too."""
    if cluster.settings["kv_bytes"] is not None:
        return flag("kv_bytes", cluster.settings["kv_bytes"])
    share = gpu_memory(parts, cluster.drafts)
    return flag("gpu_memory", share if share < 1 else None)


def variables(cluster, launch, part, host, name):
    """Of a process: the GPUs of its part, what the cluster file gives, and the mark by which it is found again."""
    device = {"CUDA_VISIBLE_DEVICES": ",".join(part.gpus)} if part is not None and part.gpus else {}
    return {**device, **cluster.environment, "COPPICE_LAUNCH": f"{launch.id}/{host.name}/{name}"}


def coordinator_process(cluster, launch):
    settings = cluster.settings
    arguments = [f"{launch.bin}/coppice-coordinator", f"--listen={settings['listen']}",
                 f"--control_listen={control_endpoint(cluster, launch)}", f"--model={settings['target']}",
                 *flag("served_model_name", settings["name"]), *flag("stuck_after", settings["stuck_after"]),
                 *flag("chat_template", settings["chat_template"]), *shared_flags(cluster), *cluster.flags["coordinator"]]
    environment = variables(cluster, launch, None, cluster.coordinator, "coordinator")
    return Process("coordinator", cluster.coordinator.name, environment, tuple(arguments), (cluster.coordinator.name,))


def draft_process(cluster, launch, i, threads):
    part = cluster.drafts[i]
    arguments = [f"{launch.bin}/coppice-draft", f"--coordinator={control_endpoint(cluster, launch)}", f"--node_id=draft-{i}",
                 f"--model={cluster.settings['draft']}", *(flag("target", cluster.settings["target"]) if cluster.states else []),
                 *compute_flags(cluster, part.host, threads),
                 *flag("kv_bytes", cluster.settings["draft_kv_bytes"]),
                 *([] if len(cluster.hosts) == 1 else [f"--listen=direct://{part.host.address}:*"]),
                 *shared_flags(cluster), *cluster.flags["draft"]]
    environment = variables(cluster, launch, part, part.host, f"draft-{i}")
    return Process(f"draft-{i}", part.host.name, environment, tuple(arguments), (part.host.name,))


def networks(addresses):
    """What tells Open MPI which interfaces to use on each host, for they have other names on other hosts: the smallest
    network with all addresses, or a list when they are far apart, for which it warns of each that a host has not. Not /32:
    Open MPI 4.1 takes it for any."""
    shared = ipaddress.ip_network(f"{addresses[0]}/31", strict=False)
    while not all(ipaddress.ip_address(address) in shared for address in addresses):
        shared = shared.supernet()
    return str(shared) if shared.prefixlen >= 16 else ",".join(f"{address}/31" for address in addresses)


def mpi_settings(parts, launch, name):
    """The variables of one replica's mpirun. Each has its own session folder: two that start at once would race to create a
    shared one."""
    settings = {"OMPI_MCA_orte_tmpdir_base": f"{launch.run}/{name}"}
    if launch.shm:
        settings["OMPI_MCA_btl_vader_backing_directory"] = launch.shm
    if len(parts) > 1:
        addresses = networks([part.host.address for part in parts])
        settings |= {"OMPI_MCA_btl": "vader,self,tcp", "OMPI_MCA_btl_tcp_if_include": addresses,
                     "OMPI_MCA_oob_tcp_if_include": addresses, "OMPI_MCA_plm_rsh_agent": launch.agent,
                     # When a host does not answer for 16 s, mpirun and the daemon there end what they have started.
                     "OMPI_MCA_oob_tcp_keepalive_time": "10", "OMPI_MCA_oob_tcp_keepalive_intvl": "2",
                     "OMPI_MCA_oob_tcp_keepalive_probes": "3"}
    return settings


def own_draft_flags(cluster):
    """Of every rank; the leader uses them."""
    if cluster.draft_nodes_take_states():
        return [f"--states_for={cluster.settings['draft']}"]
    if not cluster.own_drafts:
        return []
    return [f"--draft={cluster.settings['draft']}", *flag("draft_kv_bytes", cluster.settings["draft_kv_bytes"])]


def worker_command(cluster, launch, i, part, threads):
    parts, settings = cluster.replicas[i], cluster.settings
    nccl = settings["backend"] == "cuda" and len(parts) > 1  # it finds the interface of the address on the host itself
    return [*([str(WITH_ADDRESS), part.host.address] if nccl else []), f"{launch.bin}/coppice-worker", f"--coordinator={control_endpoint(cluster, launch)}", f"--replica_id=replica-{i}",
            f"--tp={sum(p.ranks for p in parts)}", f"--model={settings['target']}", *compute_flags(cluster, part.host, threads),
            *flag("communicator", settings["communicator"]), *(["--exact"] if settings["exact"] else []),
            *memory_flags(cluster, parts), *own_draft_flags(cluster),
            *([] if len(parts) == 1 else [f"--plan_listen=tcp://{parts[0].host.address}:*"]),
            *shared_flags(cluster), *cluster.flags["worker"]]


def check_command(cluster, launch):
    """What says on the first replica's host, before anything runs, what the target is, and whether the draft fits if it is there, too."""
    first = cluster.replicas[0][0]
    there = cluster.draft_nodes_take_states() or any(part.host == first.host for part in cluster.drafts)
    draft = cluster.settings["draft"] if there else None
    command = worker_command(cluster, launch, 0, first, threads_of(cluster))
    return [*command[command.index(f"{launch.bin}/coppice-worker"):], "--check", *flag("check_draft", draft)]


def replica_process(cluster, launch, i, threads):
    parts, name = cluster.replicas[i], f"replica-{i}"
    environment = variables(cluster, launch, parts[0] if len(parts) == 1 else None, parts[0].host, name)
    environment |= {variable: value for variable, value in mpi_settings(parts, launch, name).items() if variable not in cluster.environment}
    arguments = ["mpirun", *(["-q"] if len(parts) == 1 else [])]  # it is the one that says that a host is gone
    for k, part in enumerate(parts):
        if len(parts) > 1:
            # mpirun runs on the first host. It does not pass variables to the others by itself, and -x counts for one host's ranks alone.
            passed = {"OMP_WAIT_POLICY": "passive", **variables(cluster, launch, part, part.host, name)}
            arguments += ([":"] if k else []) + ["-host", f"{'localhost' if k == 0 else part.host.name}:{part.ranks}"]
            arguments += [word for variable, value in passed.items() for word in ("-x", f"{variable}={value}")]
        arguments += ["-np", str(part.ranks), *worker_command(cluster, launch, i, part, threads)]
    return Process(name, parts[0].host.name, environment, tuple(arguments), tuple(part.host.name for part in parts))


def processes_of(cluster, launch):
    threads = threads_of(cluster)
    return [coordinator_process(cluster, launch),
            *(replica_process(cluster, launch, i, threads) for i in range(len(cluster.replicas))),
            *(draft_process(cluster, launch, i, threads) for i in range(len(cluster.drafts)))]


def local_api(cluster, files):
    """The API as the coordinator's own host reaches it: arguments of cluster_state.Coordinator. files: those that the
    coordinator has, by their flags."""
    cert, admin_keys = (files.get(name) or None for name in ("tls_cert_file", "admin_keys_file"))
    return dict(url=url_of("https" if cert else "http", cluster.settings["listen"], "127.0.0.1"), cert=cert, admin_keys=admin_keys)


def outside_url(cluster, api):
    return url_of("https" if api["cert"] else "http", cluster.settings["listen"], cluster.coordinator.address)


def all_local(cluster):
    return all(is_local(host) for host in cluster.hosts)
