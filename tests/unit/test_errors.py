"""Errors between processes."""

import pickle

import pytest

from dpa.errors import DpaError, JobFailedError
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import Address
from experiments.simulation.violation import InvariantViolationError


@pytest.mark.parametrize(
    "error",
    [
        JobFailedError("x", {"a.events": b"1"}),
        TaskDiedError(Death(Address("reducer", 1), "killed")),
        InvariantViolationError("x", ["one", "two"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_out_of_a_pool_of_processes_as_it_was(error: DpaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)
