"""Executors and flows run on a little data in this process, without a job around them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, overload

import pyarrow as pa

from dpa._given import as_mapper, as_reducer
from dpa.config import parse
from dpa.driver.inputs import Inputs
from dpa.driver.outputs import in_memory
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.flow import Flow
from dpa.local.backend import LocalBackend
from dpa.protocol.graph import REDUCER
from dpa.protocol.plan import RunHooks
from dpa.routing.keys import KeyName, names_of
from dpa.spark import as_table

_SPLIT_ROWS = 1_000


@overload
def run_local(
    mapper: Flow, reducer: Mapping[str, Any] | None = None, *, batch_records: int = 7
) -> dict[str, pa.Table]: ...


@overload
def run_local(
    mapper: Any = None,
    reducer: Any = None,
    data: Any = None,
    *,
    key: str | Sequence[str] | None = "key",
    value: Sequence[str] | None = None,
    reducers: int = 3,
    combine: bool = False,
    batch_records: int = 7,
) -> pa.Table: ...


def run_local(
    mapper: Any = None,
    reducer: Any = None,
    data: Any = None,
    *,
    key: str | Sequence[str] | None = "key",
    value: Sequence[str] | None = None,
    reducers: int = 3,
    combine: bool = False,
    batch_records: int = 7,
) -> Any:
    """Map and reduce `data` in this process and return the result, a row a key, ordered by key.

    Of a flow, `run_local(flow)` returns the result of each step that has one, by name, and writes nothing;
    `run_local(flow, {"tweets": [...]})` has the step `tweets` read these rows instead of its input.

    Args:
        mapper: as in a job; None takes `key` and `value` columns from the data. Or a flow.
        reducer: as in a job. Of a flow, tables by the name of the step that is to read them.
        data: an Arrow table, a list of records, or a DataFrame.
        key: name of the key column, or the names of the columns of a composite key; None: all rows have one key.
        value: without a mapper, the columns that are the value.
        reducers: how many reducers share the keys; as `LocalBackend` says, keys move if the reducer can merge.
        combine: whether to combine in the mapper.
        batch_records: most records in a batch: small, so that there are several.

    Raises:
        ConfigError: an argument or executor does not fit, or an executor cannot be pickled, as a job's must.
        ExecutorError: an executor failed; names it, the key and the traceback.
    """
    if isinstance(mapper, Flow):
        spec = _of_flow(mapper, reducer or {}, batch_records)
        spec.check()
        found = _results(spec)
        return {step.name: _ordered(found[step.name], step.key) for step in spec.results}
    sections = {
        "key": key if key is None or isinstance(key, str) else list(key),
        "value": None if value is None else list(value),
        "combiner": combine,
        "parallelism": {"mappers": 1, "reducers": reducers},
        "limits": {"batch_records": batch_records, "split_records": _SPLIT_ROWS},
    }
    objects = {"input": as_table(data), "reducer": as_reducer(reducer)}
    if mapper is not None:
        objects["mapper"] = as_mapper(mapper)
    spec = JobSpec(parse(sections, origin="run_local(...)"), objects)
    return _ordered(_results(spec)[REDUCER], spec.config.key)


def _of_flow(flow: Flow, tables: Mapping[str, Any], batch_records: int) -> JobSpec:
    """The job of a flow, whose steps read `tables` where they are named there."""
    spec = flow.job().spec
    read = [source.name for source in spec.sources]
    for name in tables:
        if name not in read:
            raise ConfigError(f"run_local: {flow.name} has no step {name!r} that reads; there are {', '.join(read)}")
    limits = spec.config.limits
    if "limits" not in spec.config.model_fields_set:
        limits = replace(limits, batch_records=batch_records, split_records=_SPLIT_ROWS)
    file = replace(spec.file, config=spec.config.model_copy(update={"limits": limits}))
    given = {f"stages.{name}.read": as_table(table) for name, table in tables.items()}
    return JobSpec(file, {**spec.objects, **given})


def _results(spec: JobSpec) -> dict[str, pa.Table]:
    spec.check_executors()
    inputs = Inputs(spec)
    inputs.check()
    with ExitStack() as stack:
        opened = inputs.open(stack, _no_spark)
        splits = {name: found.splits for name, found in opened.items()}
        plan = spec.plan(splits, {name: found.schema for name, found in opened.items()})
        outcome = LocalBackend().run(plan, RunHooks())
    return {step.name: in_memory(outcome, step.name) for step in spec.results}


def _ordered(result: pa.Table, key: KeyName) -> pa.Table:
    ordered = [name for name in names_of(key) if not pa.types.is_null(result.schema.field(name).type)]
    return result.sort_by([(name, "ascending") for name in ordered]) if ordered and result.num_rows else result


def _no_spark() -> Any:
    raise ConfigError("run_local: Spark would have to read an input: give its rows, `run_local(flow, {name: rows})`")
