"""A job: from a job file or from Python, through Spark and Ray, to a `Result`.

Nothing is started before the configuration, the executors and the input's columns have been checked; but where it takes
Spark to look at the input, Ray starts beside Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import BaseModel

from dpa import config as job_config
from dpa._given import as_mapper, as_reducer
from dpa._looks import does, picture
from dpa.config import ExecutorConfig, JobConfig, JobFile
from dpa.driver.inputs import Inputs, lazy_session
from dpa.driver.outputs import written
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError, traced_from_caller
from dpa.runtime.backend import RayBackend
from dpa.sources.feed import never
from dpa.spark import as_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dpa._util.arguments import ProgressMode
    from dpa.config import keywords as kw
    from dpa.door.opening import Door
    from dpa.driver.backend import Backend
    from dpa.driver.forecast import Forecast
    from dpa.result import Result
    from dpa.telemetry.observers import Observer


@traced_from_caller
class Runnable:
    """What can be checked, forecast and run: a `Job`, or a `Flow` or the rows of a step as they are then.

    Attributes:
        resumable: where its last run left checkpoints, for `resume`; None: nowhere.
    """

    resumable: str | None = None

    def _now(self) -> JobSpec:
        """What there is to do."""
        raise NotImplementedError

    def check(self, *, resume: str | None = None) -> None:
        """Check all that can be checked without reading the input, such as the executors: `job.check()`.

        Args:
            resume: as of `run`: what that job has published so far may be there.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        from dpa.driver.run import Run

        spec = self._now()
        _checked(spec) if resume is None else Run(spec, _in_process(), resume=resume).check()

    def validate(self) -> None:
        """Check everything that can be checked without running, `job.validate()`: also that the input has the columns
        that the job and its reference query need.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        from dpa.driver.reference import Reference

        spec = self._now()
        inputs = _checked(spec)
        spec.check_executors()
        with ExitStack() as stack:
            spark = lazy_session(spec.config, stack)
            opened = inputs.open(stack, spark, stage=False)
            for step in spec.results:
                Reference(spec, step, opened, spark).check()

    def run(
        self,
        observer: Observer | None = None,
        *,
        address: str | None = None,
        backend: Backend | Literal["auto", "ray"] = "auto",
        check: bool = True,
        resume: str | None = None,
        closes: Callable[[], bool] = never,
        progress: bool | ProgressMode = "auto",
        page: Callable[[str], None] | None = None,
        unverified: Callable[[Result], AbstractContextManager[None]] | None = None,
    ) -> Result:
        """Run the job.

        Args:
            observer: receives progress; several do as `dpa.telemetry.observers.Observers`. What one raises ends no job.
            address: of a running Ray cluster, instead of the configuration's.
            backend: where the tasks run. `auto`: on Ray, but in this process if the inputs are tables in memory of
                10,000 rows at most, and nothing that the job sets needs processes. `DPA_BACKEND` is the default.
            check: whether to raise if the job fails or its result differs from the reference.
            resume: the directory of the checkpoints of this job, or of several, whose driver has ended. The job
                continues from the newest (docs/recovery.md).
            closes: whether to close open inputs now; asked a few times a second.
            progress: what stderr shows meanwhile. `auto`: a panel in terminals and notebooks after 2 seconds, elsewhere
                lines after 10; nothing beside an `observer`, or in another thread than the main one. True: the same at
                once. False: nothing. Other words are those of `dpa run --progress`; `DPA_PROGRESS` is the default.
            page: receives the address of the job's page, with its token, before the job begins. A job whose tasks run
                in this process has none.
            unverified: returns a context with the result, neither compared with its reference nor published yet, while
                Spark still computes the reference.

        Raises:
            ConfigError: something was wrong before any task started, or a reference query is.
            JobFailedError: the job failed, and `check` is set.
            JobCancelledError: a request to the running job ended it.
            ReferenceMismatchError: the result differs from the reference, and `check` is set.

        >>> job.run().table().to_pylist()
        [{'word': 'tea', 'count': 1}]
        """
        from dpa.door.opening import Door
        from dpa.driver.run import Run
        from dpa.report import progress_in_python

        spec, backend, door = self._now(), backend or "auto", None
        name = spec.config.name
        if isinstance(backend, str):
            if backend not in ("auto", "ray"):
                raise ConfigError(f"backend: {backend!r} is neither `auto` nor `ray`, nor a backend")
            is_here = backend == "auto" and address is None and resume is None and runs_here(spec)
            door = None if is_here else Door(name, spec.config.door)
            backend = _in_process() if door is None else _on_ray(spec, address, door)
        with ExitStack() as stack:
            shown = progress_in_python(progress, name, is_observed=observer is not None)
            if door is not None:
                stack.enter_context(door)
                if page is not None and door.address is not None:
                    page(door.address)
            display = stack.enter_context(shown)
            run = Run(spec, backend, [each for each in (door, observer, display) if each], resume, closes, unverified)
            try:
                result = run.result()
            finally:
                self.resumable = run.resumable
            display.ended(result.report.status)
            if door is not None:
                door.ended(result.report)
        return result.check() if check else result

    def forecast(self, *, address: str | None = None) -> Forecast:
        """A forecast of the run, `job.forecast().stages`, from a sample of each input, on which user code is run in
        this process.

        Args:
            address: of a running Ray cluster, instead of the configuration's; looked at only by a job that says how
                its tasks are placed.

        Raises:
            ConfigError: the job is not valid, or an input cannot be read.
            ExecutorError: user code fails on the sample.
        """
        from dpa.driver.forecast import forecast

        spec = self._now()
        ray = _on_ray(spec, address)
        has_nodes = spec.config.is_allocated and ray.address is not None
        return forecast(spec, ray.nodes() if has_nodes else None)


@traced_from_caller
class Job(Runnable):
    """A map/reduce job over a table.

    From Python, give what a job file would say; executors and input may be objects:

    >>> job = Job(input=[{"word": "tea"}], key="word", reducer=Count(), parallelism={"reducers": 2})

    Attributes:
        spec: what to do: the configuration and the executors.
    """

    def __init__(
        self,
        *,
        input: Any = None,
        mapper: kw.AnyMapper | None = None,
        reducer: kw.AnyReducer | None = None,
        file: JobFile | None = None,
        objects: Mapping[str, Any] | None = None,
        **sections: Unpack[kw.Job],
    ) -> None:
        """Make a job.

        Args:
            input: a path or glob, an Arrow table, a list of records, a pandas, polars or Spark DataFrame, or an `input`
                section.
            mapper: a mapper, a function of a record, or a `mapper` section.
            reducer: a reducer, a function of two values, or a `reducer` section.
            file: a checked configuration, instead of `sections`.
            objects: executors and tables, by the key path of the section that they stand for.
            sections: the other keys of a job file.

        Raises:
            ConfigError: something does not fit.
        """
        read = {"path": fspath(input)} if isinstance(input, str | PathLike) else input
        given = {"input": read, "mapper": mapper, "reducer": reducer}
        plain = {name: value for name, value in given.items() if value is not None and _is_section(name, value)}
        made = {name: _AS[name](given[name]) for name in given if given[name] is not None and name not in plain}
        checked = file or job_config.parse({**sections, **plain}, origin="Job(...)")
        self.spec = JobSpec(checked, {**made, **(objects or {})})

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> Job:
        """The job of a job file, with overrides: `Job.from_file("configs/wordcount.yaml", ["parallelism.reducers=2"])`.

        Raises:
            ConfigError: the file cannot be read or does not fit the schema.
        """
        return cls(file=job_config.load(path, overrides))

    @property
    def config(self) -> JobConfig:
        """The resolved configuration."""
        return self.spec.config

    @property
    def directories(self) -> dict[str, str]:
        """The directories of its results and partial results, by the key path that names each."""
        return {f"{key}.path": section.path for key, section in written(self.spec.file) if section.path is not None}

    def _now(self) -> JobSpec:
        return self.spec

    def __repr__(self) -> str:
        steps = self._stages
        shown = steps if self.config.stages else map(does, steps.values())
        return f"<Job {self.config.name!r}: {', '.join(shown)}>"

    def _repr_html_(self) -> str:
        return picture(self._stages)

    @property
    def _stages(self) -> dict[str, Any]:
        return {name: step.resolved() for name, step in self.spec.file.stages.items()}


def _checked(spec: JobSpec) -> Inputs:
    """The inputs of a job, once all is checked that needs no look at them."""
    from dpa.door.opening import token_and_certificate

    spec.check()
    inputs = Inputs(spec)
    inputs.check()
    token_and_certificate(spec.config.door)
    return inputs


def _on_ray(spec: JobSpec, address: str | None, door: Door | None = None) -> RayBackend:
    ray = spec.config.ray
    reached = nullcontext if door is None else door.reached
    return RayBackend(address or ray.address, ray.runtime_env, ray.object_store_mb, reached)


def _in_process() -> Backend:
    from dpa.local.backend import LocalBackend

    return LocalBackend(redistributes=False)


_AS: dict[str, Callable[[Any], Any]] = {"input": as_table, "mapper": as_mapper, "reducer": as_reducer}
"""What objects that a job was given are made into."""


def _is_section(name: str, value: Any) -> bool:
    """Whether an argument is what a job file would hold, rather than an object."""
    if isinstance(value, dict):
        return name != "input" or bool({"format", "path"} & {*value})
    return name != "input" and isinstance(value, str | ExecutorConfig)


_FEW_ROWS = 10_000  # starting processes for fewer takes longer than to process them, unless a record takes milliseconds

_OF_PROCESSES = frozenset(  # keys of job files that say how tasks in processes are to behave
    ("balance", "checkpoint", "epoch_log", "grouping", "placement", "ray", "recovery", "resources", "testing")
)


def runs_here(spec: JobSpec) -> bool:
    """Whether a job is so small that its tasks run in this process by themselves: its inputs are few rows in memory, it
    sets nothing about processes, publishes at its end alone, and this process has no Ray."""
    has_ray = getattr(sys.modules.get("ray"), "is_initialized", bool)()  # not while it is imported
    if os.environ.get("DPA_BACKEND", "auto") != "auto" or has_ray:
        return False
    sections = (spec.config, *spec.config.stages.values())
    if any(map(_says_how, sections)) or any(output.publish for _, output in written(spec.file)):
        return False
    rows = 0
    for source in spec.sources:
        table = spec.objects.get(spec.input_of(source)[0])
        if not isinstance(table, pa.Table):
            return False
        rows += len(table)
    return rows <= _FEW_ROWS


def _says_how(section: BaseModel) -> bool:
    """Whether a section sets, to anything but its default, how tasks in processes are to behave."""
    fields = type(section).model_fields
    return any(
        getattr(section, name) != fields[name].get_default(call_default_factory=True)
        for name in _OF_PROCESSES & fields.keys()
    )
