"""SIGTERM ends a search at once, but not in the middle of recording a result."""

import os
import signal

import pytest
from simulation import SimulatedPipeline, plan, train

from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.termination import TerminableSource


class EndedError(Exception):
    """Stands for the end of the process."""


def end():
    raise EndedError


@pytest.fixture(autouse=True)
def keep_handler():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_between_results_it_ends_at_once():
    TerminableSource(Finder(plan(), SimulatedPipeline()), end)
    with pytest.raises(EndedError):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_second_signal_does_not_disturb_the_end():
    ends = []

    def end_slowly():
        ends.append("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        ends.append("done")

    TerminableSource(Finder(plan(), SimulatedPipeline()), end_slowly)
    os.kill(os.getpid(), signal.SIGTERM)
    assert ends == ["begun", "done"]


def test_while_a_result_is_recorded_it_ends_when_that_is_done():
    finished = []

    class Killing:
        def job_started(self, job):
            pass

        def job_finished(self, job, result, *, replayed):
            os.kill(os.getpid(), signal.SIGTERM)
            finished.append(job.key)

        def cell_decided(self, cell, verdict, *, control):
            pass

    source = TerminableSource(Finder(plan(), SimulatedPipeline(), [Killing()]), end)
    job = source.next_job()
    with pytest.raises(EndedError):
        source.observe(job, train(job, {}))
    assert finished == [job.key]
    assert source.finder.finished
