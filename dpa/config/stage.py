"""The sections of a job file that belong to one stage: what it runs, and how its work is divided and kept even.

A job of one mapper and one reducer has them at its top. They refer to nothing but each other, so that each stage of a
graph can have its own.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from dpa._util.declared import type_names
from dpa._util.words import plural
from dpa.balance.elastic import ElasticOptions
from dpa.balance.options import BalanceOptions
from dpa.config.section import Section
from dpa.config.variants import BALANCE, GROUPING, Plain
from dpa.protocol.task.flow_control import FlowControl
from dpa.routing.groupings.options import GroupingOptions
from dpa.routing.keys import KeyName
from dpa.routing.members import MOST_TASKS

Tasks: TypeAlias = Annotated[int, Field(ge=1, le=MOST_TASKS)]
"""How many tasks a stage has."""

Grouping: TypeAlias = Annotated[GroupingOptions, GROUPING]
Balance: TypeAlias = Annotated[BalanceOptions, BALANCE]


class ExecutorConfig(Section):
    """A mapper or reducer named in a job file."""

    use: str
    """`package.module:Name`, a class or a function; or the name of a ready-made reducer such as `count`."""
    args: dict[str, Any] = {}
    """Keyword arguments for the class."""


def _as_executor(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


def _as_columns(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def as_key(value: Any) -> KeyName:
    """A key column's name, or the names of several: a list of one is that name; null means one key of all rows."""
    if value is None or value == ():
        return ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"a key is the name of a column, or a list of names, not {json.dumps(value, default=str)}")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"the column {twice[0]!r} is named more than once")
    return names[0] if len(names) == 1 else tuple(names)


Executor: TypeAlias = Annotated[
    ExecutorConfig, BeforeValidator(_as_executor, json_schema_input_type=str | ExecutorConfig)
]
Schema: TypeAlias = Annotated[dict[str, str], BeforeValidator(type_names, json_schema_input_type=dict[str, str])]
"""Columns, each with the name of its Arrow type."""
Columns: TypeAlias = Annotated[list[str], BeforeValidator(_as_columns, json_schema_input_type=str | list[str])]
KeyColumns: TypeAlias = Annotated[KeyName, BeforeValidator(as_key, json_schema_input_type=str | list[str] | None)]


class AggregationConfig(Section):
    """Partial results while the stream runs: partial states are folded every few seconds (consistent grouping paper,
    section V-C)."""

    seconds: float = Field(gt=0)
    """Seconds from the end of a round to the start of the next; in effect a multiple of a quarter of a second."""
    path: str | None = None
    """Directory in which the newest complete round is found as Parquet, relative to the working directory; without it
    states are folded, and nothing is published."""


Elastic: TypeAlias = Annotated[ElasticOptions, Plain(ElasticOptions)]
StageLimits: TypeAlias = Annotated[FlowControl, Plain(FlowControl)]


class TestingConfig(Section):
    """Tasks that are slow on purpose: a cluster of unequal machines on one machine, for experiments and tests."""

    slow_factor: list[Annotated[float, Field(ge=1, allow_inf_nan=False)]] = []
    """By what factor user code takes longer on each task, in their order; they sleep for the rest."""
    cpu_contention: list[Annotated[int, Field(ge=0)]] = []
    """Numbers of the tasks that share one processor with a busy process. Linux only."""

    def require_tasks(self, tasks: int) -> None:
        """Check that the section fits a stage of `tasks` tasks.

        Raises:
            ValueError: it does not.
        """
        if self.slow_factor and len(self.slow_factor) != tasks:
            given = f"{len(self.slow_factor)} for {plural(tasks, 'task')}"
            raise ValueError(f"slow_factor needs a factor for each task, or none at all, not {given}")
        for number in self.cpu_contention:
            if number >= tasks:
                raise ValueError(f"cpu_contention names task {number}, and the last one is {tasks - 1}")
            if self.cpu_contention.count(number) > 1:
                raise ValueError(f"cpu_contention names task {number} more than once")
