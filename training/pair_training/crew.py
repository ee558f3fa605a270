"""The processes that train a model together. One thread each and one exchange a step: on a busy machine, threads inside the matrix
products of one process would wait for each other hundreds of times a step."""
import os
import signal
import socket
import sys
import threading
import time

import torch

from pair_training.data import DataError

FAULT = 2  # the exit status of a process that met data that cannot be used


class Crew:
    """Process `rank` of `size`. Each has its part of a step's rows and of the matrices."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def sum(self, tensors):
        """Each tensor becomes its sum over the processes, in one exchange."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        torch.distributed.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))

    def gather(self, value):
        """The values of all processes, in process 0; None in the others."""
        if self.size == 1:
            return [value]
        values = [None] * self.size if self.rank == 0 else None
        torch.distributed.gather_object(value, values)
        return values


def run(task, size, threads):
    """Runs task(crew) in `size` processes, of which this one waits for all; none outlives it."""
    if size == 1:
        torch.set_num_threads(threads)
        task(Crew(0, 1))
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    faults = torch.multiprocessing.get_context("spawn").SimpleQueue()
    context = torch.multiprocessing.spawn(_process, (task, size, threads, port, os.getpid(), faults), size, join=False)
    try:
        while not context.join():
            pass
    except torch.multiprocessing.ProcessExitedException as end:
        if end.exit_code != FAULT:
            raise
        raise DataError(faults.get()) from None
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
            process.join()


def _process(rank, task, size, threads, port, parent, faults):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        task(Crew(rank, size))
    except DataError as fault:
        faults.put(str(fault))
        os._exit(FAULT)
    torch.distributed.destroy_process_group()


def _follow(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
