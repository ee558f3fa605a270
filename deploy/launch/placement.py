"""Gives every replica and draft node its host and GPUs. What the description places by name stays there; the rest goes where
most is free."""
import collections

from description import Cluster, DescriptionError, Part

MANY = 10**6       # slots of a host without a limit
DRAFT_SHARE = 0.2  # of a GPU's memory, left for each draft node that shares it with a replica
OWN_DRAFTS_NOTE = "no {} is free for a draft node: each replica grows drafts in its leader's process"


class Room:
    """What is free on each host."""

    def __init__(self, hosts, backend):
        self.hosts = hosts
        self.bound = backend == "cuda" and any(host.gpus for host in hosts)
        self.users = collections.Counter()   # of (host name, GPU)
        self.taken = collections.Counter()   # places of a host

    def free_gpus(self, host):
        return [gpu for gpu in host.gpus if not self.users[host.name, gpu]]

    def free(self, host):
        if self.bound:
            return len(self.free_gpus(host))
        return (host.slots or MANY) - self.taken[host.name]

    def take(self, host, gpu):
        self.taken[host.name] += 1
        if gpu is not None:
            self.users[host.name, gpu] += 1
        return host, gpu

    def take_free(self, host, count):
        gpus = self.free_gpus(host)[:count] if self.bound else [None] * count
        return [self.take(host, gpu) for gpu in gpus]

    def said(self):
        if self.bound:
            return ", ".join(f"{host.name}:{','.join(self.free_gpus(host))}" for host in self.hosts if self.free(host) > 0) or "none"
        return ", ".join(f"{max(0, self.free(host))} of {host.name}" for host in self.hosts)


def place_replica(room, name, tp, where):
    """A replica is on one host if one has room for it, else on several, in their order."""
    best = max(room.hosts, key=room.free)
    if room.free(best) >= tp:
        return room.take_free(best, tp)
    ranks = []
    for host in room.hosts:
        ranks += room.take_free(host, max(0, min(room.free(host), tp - len(ranks))))
    if len(ranks) < tp:
        for host, gpu in ranks:
            room.taken[host.name] -= 1
            room.users[host.name, gpu] -= 1
        raise DescriptionError(f"{where}: {name} needs {tp} {'GPUs' if room.bound else 'slots'}; free are: {room.said()}")
    return ranks


def place_draft(room, name, where):
    """A draft node gets a GPU of its own if one is free, else it shares the one with the fewest processes."""
    best = max(room.hosts, key=room.free)
    if room.free(best) >= 1:
        return room.take_free(best, 1)
    if not room.bound:
        raise DescriptionError(f"{where}: {name} needs a slot; free are: {room.said()}")
    host, gpu = min(((host, gpu) for host in room.hosts for gpu in host.gpus), key=lambda at: room.users[at[0].name, at[1]])
    return [room.take(host, gpu)]


def drafts_beside(parts, drafts):
    """Of each GPU of a replica, (host, GPU): the indices of the draft nodes that use it, too."""
    return {(part.host.name, gpu): [i for i, draft in enumerate(drafts) if draft.host == part.host and gpu in draft.gpus]
            for part in parts for gpu in part.gpus}


def gpu_memory(parts, drafts):
    """The share of its GPUs' memory that a replica may take: what its draft nodes leave on the GPU with the most of them."""
    most = max((len(beside) for beside in drafts_beside(parts, drafts).values()), default=0)
    return round(max(0.5, 1 - DRAFT_SHARE * most), 2)


def notes_of(replicas, drafts):
    for i, parts in enumerate(replicas):
        for (host, gpu), beside in drafts_beside(parts, drafts).items():
            if beside:
                names = " and ".join(f"draft-{k}" for k in beside) + (" shares" if len(beside) == 1 else " share")
                yield (f"{names} GPU {gpu} of {host} with replica-{i}, which takes {gpu_memory(parts, drafts):.0%} of its memory unless "
                       "kv_bytes is given; they compute in turns unless MPS runs there")


def drafts_stay(room, settings, flags, where):
    """Whether the leaders of replicas run the draft themselves: if it takes hidden states and nobody asked for draft nodes, or if no draft
    node would have a GPU of its own, or a slot for a draft that nobody has named. Not if the draft nodes have flags of their own."""
    if settings["draft"] is None or settings["drafts"] == 0 or settings["draft_in"] == "nodes":
        return False
    if settings["draft_in"] == "worker":
        if settings["drafts"] is not None:
            raise DescriptionError(f"{where('draft_in')}: the draft is in the workers, but drafts is {settings['drafts']}")
        return True
    if flags["draft"]:
        return False
    full = (room.bound or settings.get("draft_found")) and not any(room.free(host) > 0 for host in room.hosts)
    return full or (settings["draft_kind"] == "head" and settings["drafts"] is None)


def parts_of(ranks):
    """Ranks of the same host, one after the other, are one part."""
    parts = []
    for host, gpu in ranks:
        gpus = () if gpu is None else (gpu,)
        if parts and parts[-1].host == host:
            parts[-1] = Part(host, parts[-1].ranks + 1, parts[-1].gpus + gpus)
        else:
            parts.append(Part(host, 1, gpus))
    return tuple(parts)


def place(settings, hosts, coordinator, replicas, drafts, flags, environment, where, said=()):
    """replicas, drafts: the places of those that are placed by name, [] if none is. where(field) is the place of a setting. said: lines
    about the choice of the draft."""
    room = Room(hosts, settings["backend"])
    for ranks in replicas + drafts:
        for host, gpu in ranks:
            room.take(host, gpu)
    if not replicas:
        replicas = [place_replica(room, f"replica-{i}", settings["tp"], where("replicas")) for i in range(settings["replicas"])]
    if drafts and settings["draft_in"] == "worker":
        raise DescriptionError(f"{where('draft_in')}: the draft is in the workers, but there are {len(drafts)} [[draft_node]] tables")
    own_drafts = not drafts and drafts_stay(room, settings, flags, where)
    if not drafts and not own_drafts and settings["draft"] is not None:
        count = 1 if settings["drafts"] is None else settings["drafts"]
        drafts = [place_draft(room, f"draft-{i}", where("drafts")) for i in range(count)]
    for i, ranks in enumerate(replicas):
        names = [host.name for host, _ in ranks]
        if any(name in names[:k] and names[k - 1] != name for k, name in enumerate(names)):
            raise DescriptionError(f"{where('replicas')}: replica-{i}: the ranks of a host must stand together, got {', '.join(names)}")
    host, listen, control_port = coordinator
    settings = dict(settings, listen=listen, control_port=control_port)
    replicas, drafts = tuple(parts_of(ranks) for ranks in replicas), tuple(parts_of(ranks)[0] for ranks in drafts)
    states = settings["draft"] is not None and settings["draft_kind"] == "head"
    full = own_drafts and settings["draft_in"] == "auto" and not (states and settings["drafts"] is None)
    notes = (*said, *((OWN_DRAFTS_NOTE.format("GPU" if room.bound else "slot"),) if full else notes_of(replicas, drafts)))
    return Cluster(settings, tuple(hosts), host, replicas, drafts, flags, environment, notes, own_drafts, states)
