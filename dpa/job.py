"""A job: from a job file or from Python, through Spark and Ray, to a `Result`.

Nothing is started before the configuration, the executors and the input's columns have been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa import config as job_config
from dpa.config import ExecutorConfig, JobFile
from dpa.definition import Definition
from dpa.executors import as_mapper, as_reducer
from dpa.inputs import Input, check, open_input, sample_of, session_of
from dpa.phases import Observer, Run
from dpa.reference import Reference
from dpa.result import Result
from dpa.tables import as_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Job(Definition):
    """A map/reduce job over a table.

    From Python, give what a job file would say; executors and input may be objects:

        Job(input=table, key="word", reducer=Count(), parallelism={"reducers": 2}).run()
    """

    def __init__(
        self,
        *,
        input: Any = None,
        mapper: Any = None,
        reducer: Any = None,
        file: JobFile | None = None,
        **sections: Any,
    ) -> None:
        """Make a job.

        Args:
            input: an Arrow table, a list of records, a pandas, polars or Spark DataFrame, or an `input` section.
            mapper: a mapper, a function of a record, or a `mapper` section.
            reducer: a reducer, a function of two values, or a `reducer` section.
            file: a checked configuration, instead of `sections`.
            sections: the other keys of a job file.

        Raises:
            ConfigError: something does not fit.
        """
        given = {"input": input, "mapper": mapper, "reducer": reducer}
        plain = {name: value for name, value in given.items() if value is not None and _is_section(name, value)}
        objects = {name: value for name, value in given.items() if value is not None and name not in plain}
        super().__init__(
            file or job_config.parse({**sections, **plain}, origin="Job(...)"),
            as_mapper(objects["mapper"]) if "mapper" in objects else None,
            as_reducer(objects["reducer"]) if "reducer" in objects else None,
        )
        self._data: pa.Table | None = as_table(objects["input"]) if "input" in objects else None

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> Job:
        """The job of a job file, with `section.key=value` overrides.

        Raises:
            ConfigError: the file cannot be read or does not fit the schema.
        """
        return cls(file=job_config.load(path, overrides))

    def check(self) -> None:
        """Check all that can be checked without reading the input: executors, and that they fit the rest.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        check(self, self._data)

    def validate(self) -> None:
        """Check everything that can be checked without running: also that the input has the columns that the job and
        its reference query need.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        self.check()
        self.check_picklable()
        with ExitStack() as stack:
            spark = self.spark(stack)
            Reference(self, self.open_input(stack, spark, stage=False), spark).check()

    def run(self, observer: Observer | None = None, *, address: str | None = None, check: bool = True) -> Result:
        """Run the job.

        Args:
            observer: who is told of progress.
            address: of a running Ray cluster, instead of the configuration's.
            check: whether to raise if the job fails or its result differs from the reference.

        Raises:
            ConfigError: something was wrong before any actor started.
            JobFailedError: the job failed, and `check` is set.
            ReferenceMismatchError: the result differs from the reference, and `check` is set.
        """
        result = Run(self, self._data, observer, address).result()
        return result.check() if check else result

    def open_input(self, stack: ExitStack, spark: Callable[[], SparkSession], *, stage: bool = True) -> Input:
        """Have the input ready for as long as `stack` is open; without `stage` only its columns are looked at.

        Raises:
            ConfigError: it cannot be read, or lacks a column.
        """
        return open_input(self, self._data, stack, spark, stage=stage)

    def sample(self, stack: ExitStack, most_rows: int) -> tuple[int | None, pa.Table]:
        """About `most_rows` rows of the input, drawn at random, and how many there are in all.

        Raises:
            ConfigError: the input cannot be read, or lacks a column.
        """
        return sample_of(self, self.open_input(stack, self.spark(stack), stage=False), most_rows)

    def spark(self, stack: ExitStack) -> Callable[[], SparkSession]:
        """A function that gives the one Spark session of `stack`, starting it when it is first called."""
        return session_of(self.config, stack)


def _is_section(name: str, value: Any) -> bool:
    """Whether an argument is what a job file would hold, rather than an object."""
    if isinstance(value, dict):
        return name != "input" or "format" in value
    return name != "input" and isinstance(value, str | ExecutorConfig)
