"""Errors between processes."""

import pickle

import pytest

from dpa.errors import ConfigError, DpaError, ExecutorError, JobFailedError
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import Address
from experiments.simulation.violation import InvariantViolationError


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("x", "input.path", "job.yaml:3"),
        JobFailedError("x", {"a.events": b"1"}),
        TaskDiedError(Death(Address("reducer", 1), "killed")),
        InvariantViolationError("x", ["one", "two"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_out_of_a_pool_of_processes_as_it_was(error: DpaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)


def test_an_error_has_its_key_and_place_beside_the_message_and_in_its_text() -> None:
    error = ConfigError("is a: b", "input.path", "job.yaml:3")
    assert (error.message, error.key, error.place) == ("is a: b", "input.path", "job.yaml:3")
    assert str(error) == "job.yaml:3: input.path: is a: b"


def test_an_error_of_a_text_alone_has_no_key() -> None:
    error = ExecutorError("is: x")
    assert (str(error), error.message, error.key) == ("is: x", "is: x", None)
