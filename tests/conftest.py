"""Shared by all tests. Folders have no __init__.py, so names of test modules are unique across folders."""

import os

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Tables are mapped to a folder of the tests' own, not the user's."""
    os.environ["VRGD_CACHE"] = str(tmp_path_factory.mktemp("cache"))
