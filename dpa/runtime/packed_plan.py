"""A plan on its way to actors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar

from dpa._secrets import know, known, learn
from dpa.errors import ConfigError
from dpa.executors import name_of
from dpa.protocol.plan import RunPlan
from dpa.runtime._surroundings import Surroundings
from dpa.sources.feed import Feed

T = TypeVar("T")


@dataclass(frozen=True)
class PackedPlan:
    """A plan on its way to an actor, still pickled: the actor must know where to find the user's modules first.

    Attributes:
        pickled: the plan without its splits, which sources get one by one, and without feeds.
        feeds: by source; the coordinator alone unpacks them.
        rows: how many input rows the splits have.
        tasks: how many tasks the stages have.
        secrets: what no message from the actor may hold.
        changes: what the driver has changed since Ray started; None: nothing.
        polars: the version with which expressions in the plan are pickled.
    """

    python_path: tuple[str, ...]
    pickled: bytes
    feeds: bytes
    rows: int
    tasks: int
    secrets: tuple[str, ...] = field(repr=False)
    changes: Surroundings | None = None
    polars: str = field(default_factory=partial(version, "polars"))

    @staticmethod
    def pack(plan: RunPlan, changes: Surroundings | None = None) -> PackedPlan:
        """The plan, ready to be sent. ConfigError if an executor cannot be pickled."""
        tasks = sum(stage.tasks for stage in plan.graph.stages)
        packed = pickled(replace(plan, graph=plan.graph.without_splits(), feeds={}))
        return PackedPlan(plan.python_path, packed, pickled(plan.feeds), plan.rows, tasks, known(), changes)

    def unpack(self) -> RunPlan:
        """The plan, in an actor. ConfigError if a module of the user's is not to be found there, or the plan has
        expressions of another version of polars."""
        from ray import cloudpickle

        here = version("polars")
        if here != self.polars and b"polars" in self.pickled:
            why = f"the job was started with polars {self.polars}, and its actors have {here}"
            raise ConfigError(f"{why}: expressions need the same version on all nodes, so install it there")
        with self.importing("an executor"):
            plan: RunPlan = cloudpickle.loads(self.pickled)
            if plan.frozen is not None:
                plan = replace(plan, tasks=cloudpickle.loads(plan.frozen), frozen=None)
        return plan

    def unpack_feeds(self) -> Mapping[str, Feed]:
        """The feeds of the plan's open inputs, in the coordinator's actor. Errors as of `unpack`."""
        from ray import cloudpickle

        with self.importing("a feed"):
            feeds: Mapping[str, Feed] = cloudpickle.loads(self.feeds)
        return feeds

    @contextmanager
    def importing(self, what: str) -> Iterator[None]:
        """In the block modules of the user's are found; ConfigError if one is missing."""
        know(self.secrets)
        learn(os.environ)
        sys.path += [path for path in self.python_path if path not in sys.path]
        try:
            yield
        except ImportError as error:
            hint = "on a cluster, name its directory in `ray.runtime_env.working_dir`"
            raise ConfigError(f"the module of {what} is missing where the actors run: {error}; {hint}") from None


def frozen(plan: RunPlan) -> RunPlan:
    """The plan with user code as it is now: what that does later in this process changes nothing. ConfigError if an
    executor cannot be pickled."""
    return replace(plan, tasks={}, frozen=pickled(plan.tasks))


def copied(thing: T) -> T:
    """A copy by pickling, also of what functions have closed over, but not of classes and modules."""
    from ray import cloudpickle

    copy: T = cloudpickle.loads(pickled(thing))
    return copy


def pickled(thing: object) -> bytes:
    """Something with user code, pickled for actors. ConfigError if that cannot be."""
    from ray import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(thing)
    except Exception as error:
        raise ConfigError(
            f"the executors cannot be sent to the actors: {error!r}; keep what they hold picklable"
        ) from None
    return content


def require_picklable(executor: object) -> None:
    """ConfigError if an executor cannot be sent to actors. Called before Ray is there."""
    try:
        cloudpickle_here().dumps(executor)
    except Exception as error:
        why = f"{error!r}; keep what it holds picklable"
        raise ConfigError(f"{name_of(executor)} cannot be sent to the actors: {why}") from None


def cloudpickle_here() -> Any:
    """The module that pickles code, or Ray's copy of it where this process has Ray."""
    # To import Ray may be too early, as it reads the environment then. Only Ray's copy can pickle Ray's own handles; a
    # process that has any has imported Ray.
    return import_module("ray.cloudpickle" if "ray" in sys.modules else "cloudpickle")
