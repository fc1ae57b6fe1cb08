"""Test data that cannot be read is refused where it is missed, not where all data may be elsewhere."""

import pytest
import torch
from workloads import Blobs, TensorData

from vrgd_ray.config import ConfigError
from vrgd_ray.training.checks import check_test_data


class Broken(TensorData):
    """Data that opens, and whose samples cannot be read."""

    def __init__(self, error):
        super().__init__(torch.ones(3, 4), torch.zeros(3))
        self.error = error

    def __getitem__(self, indices):
        raise self.error


def check(**members):
    pipeline = Blobs()
    for name, data in members.items():
        setattr(pipeline, name, lambda data=data: data)
    check_test_data(pipeline)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Broken(ConfigError("label holds -1; it must be 0 or 1.")), "^label holds -1; it must be 0 or 1.$"),
        (
            Broken(RuntimeError("cannot parse 'x'\nand more")),
            r"^the pipeline's test_data\(\) cannot be read: RuntimeError: cannot parse 'x'\.$",
        ),
        (TensorData(torch.ones(0, 4), torch.zeros(0)), r"test_data\(\) holds no samples"),
    ],
    ids=["refused", "unreadable", "empty"],
)
def test_test_data_that_is_broken_is_refused_in_a_sentence(data, message):
    with pytest.raises(ConfigError, match=message):
        check(test_data=data)


def test_data_that_is_all_elsewhere_is_left_to_the_workers_and_good_data_leaves_the_generator_alone():
    before = torch.get_rng_state()
    check(train_data=Broken(FileNotFoundError("gone")), test_data=Broken(FileNotFoundError("gone")))
    check()
    assert torch.equal(before, torch.get_rng_state())


def test_test_data_may_be_what_evaluate_alone_understands():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(3, 4)))
    check(test_data=loader)
    check(test_data=[(torch.ones(3, 4), torch.zeros(3))])
