"""Which errors of a worker are the program's own, and which tell of another machine."""

import pytest
import torch.distributed as dist

from vrgd_ray.training.worker import _is_of_connection


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:5"
        ),
        RuntimeError("[pair.cc:446] writev [10.0.0.2]:5: Connection reset by peer"),
        RuntimeError("[unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
        dist.DistBackendError("NCCL error"),
        ConnectionRefusedError(111, "refused"),
    ],
)
def test_a_lost_machine_is_not_the_programs_fault(error):
    assert _is_of_connection(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("unknown layer 'skip_connection'"),
        RuntimeError("Missing key(s) in state_dict: skip_connection.weight"),
        KeyError("connection closed"),
    ],
)
def test_a_word_in_a_message_makes_no_lost_machine(error):
    assert not _is_of_connection(error)
