"""Runs a function in several gloo workers on loopback; an assertion that fails in any of them fails the test."""

import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_workers(function, num_workers):
    """Call function(rank) in that many processes which share a process group."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_worker, (function, num_workers, f"file://{folder}/rendezvous"), num_workers)


def _worker(rank, function, num_workers, rendezvous):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=num_workers, timeout=timedelta(seconds=60)
    )
    function(rank)
    dist.barrier()
    dist.destroy_process_group()
