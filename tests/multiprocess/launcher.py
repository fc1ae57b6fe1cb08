"""Runs a function in several workers; an assertion that fails in any of them fails the test."""

import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = timedelta(seconds=240)  # on a crowded machine workers start and advance far apart


def run_workers(function, num_workers, backend="gloo"):
    """Call function(rank) in that many processes which share a process group."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_worker, (function, num_workers, f"file://{folder}/rendezvous", backend), num_workers)


def _worker(rank, function, num_workers, rendezvous, backend):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=num_workers, timeout=TIMEOUT)
    function(rank)
    dist.barrier()
    dist.destroy_process_group()
    # What had to hold has held. On a crowded machine the interpreter's own end sometimes aborts: a thread of gloo frees
    # the last tensor while there is no interpreter left to do it in.
    os._exit(0)
