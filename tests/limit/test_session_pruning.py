"""When a session prunes trials."""

import pytest
from simulation import SimulatedPipeline, plan

from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.folder import RunFolder
from vrgd_ray.limit.session import SearchSession
from vrgd_ray.search.pruning import CellPruner
from vrgd_ray.search.study import TrialResources
from vrgd_ray.tracking.null import NullTracker


@pytest.mark.parametrize(
    ("prune", "workers", "pruner"), [(True, 1, CellPruner), (False, 1, type(None)), (True, 2, type(None))]
)
def test_trials_are_pruned_unless_that_is_off_or_they_have_several_workers(prune, workers, pruner, tmp_path):
    session = SearchSession(
        plan=plan(prune=prune),
        pipeline=SimulatedPipeline(),
        folder=RunFolder(tmp_path),
        tracker=NullTracker(),
        resources=TrialResources(workers=workers),
        storage=str(tmp_path),
        command="",
        render_report=str,
        connect=lambda: pytest.fail("no search here"),
    )
    assert type(session._pruner(Finder(session.plan, session.pipeline))) is pruner
