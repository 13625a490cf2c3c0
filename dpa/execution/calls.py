"""Calls into a user's reducer or process. An exception, or a wrong return value, becomes an `ExecutorError` that names
it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution._held import held_of, value_of
from dpa.execution.failures import USER_ERRORS, at, described, executor_error, shown
from dpa.execution.rows import require_record
from dpa.executors import NOTHING, BatchReducer, FunctionReducer, Groups, Process, Record, Reducer, RowsReducer, name_of
from dpa.routing.keys import in_words


@described(lambda local: at(local["reducer"], local["method"], f"key {in_words(local['keys'][local['code']])}"))
def fold(
    reducer: Reducer[Any, Any], method: str, states: list[Any], codes: Sequence[int], values: list[Any], keys: list[Any]
) -> None:
    """Fold `values[i]` into `states[codes[i]]`, in order, in place; shapes: states and keys (keys,), codes and values
    (rows,)."""
    function: Callable[[Any, Any], Any] = getattr(reducer, method)
    taken = list.__iter__(values)
    pairs = zip(codes, held_of(values, taken), strict=True)
    try:
        if type(reducer) is FunctionReducer and method == "reduce":  # as its `reduce` does, with one call less
            function = reducer.function
            for code, value in pairs:
                state = states[code]
                states[code] = value if state is NOTHING else function(state, value)
        else:
            for code, value in pairs:
                states[code] = function(states[code], value)
    except USER_ERRORS as error:
        row = len(values) - length_hint(taken) - 1
        on, value, said = f"key {in_words(keys[codes[row]])}", value_of(values[row]), str(error)
        is_taken_for_dict = f"'{type(value).__name__}' object" in said or "string indices" in said
        if method == "reduce" and is_taken_for_dict and not isinstance(value, dict):
            on += f", whose value {shown(value)} is no dict (a single column is one only if `reads` names it)"
        raise executor_error(reducer, method, on, error, row) from None


@described(lambda local: at(local["reducer"], "zero", f"key {in_words(local['key'])}"))
def zero(reducer: Reducer[Any, Any] | Process[Any, Any], key: Any) -> Any:
    try:
        return reducer.zero()
    except USER_ERRORS as error:
        failed = executor_error(reducer, "zero", f"key {in_words(key)}", error)
        raise ExecutorError(str(failed)) from None  # no record is to blame that could be left out


@described(lambda local: at(local["reducer"], local["method"], f"{local['rows']} keys"))
def columns(reducer: BatchReducer, method: str, argument: Groups | pa.RecordBatch, rows: int) -> pa.RecordBatch:
    try:
        found = getattr(reducer, method)(argument)
    except USER_ERRORS as error:
        raise executor_error(reducer, method, f"{rows} keys", error) from None
    if not isinstance(found, pa.RecordBatch) or found.num_rows != rows:
        got = f"{found.num_rows} rows" if isinstance(found, pa.RecordBatch) else type(found).__name__
        wanted = f"a pyarrow.RecordBatch with one row a group ({rows}), not {got}"
        raise ExecutorError(f"{name_of(reducer)}.{method} must return {wanted}")
    return found


@described(lambda local: at(local["reducer"], "finish_rows", f"{local['states'].num_rows} keys"))
def rows(reducer: RowsReducer, states: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows, and the position of the state of each."""
    try:
        found = reducer.finish_rows(states)
    except USER_ERRORS as error:
        raise executor_error(reducer, "finish_rows", f"{states.num_rows} keys", error) from None
    match found:
        case (pa.RecordBatch() as batch, np.ndarray() as places) if len(places) == batch.num_rows:
            return batch, places
    wanted = "a pyarrow.RecordBatch and an array with the position of the state of each row"
    raise ExecutorError(f"{name_of(reducer)}.finish_rows must return {wanted}, not {type(found).__name__}")


@described(lambda local: at(local["process"], "process", f"key {in_words(local['keys'][local['code']])}"))
def emitted(
    process: Process[Any, Any], states: list[Any], codes: Sequence[int], values: list[Any], keys: list[Any]
) -> list[Record]:
    """The records that a process emits for `values[i]` of key `keys[codes[i]]`, in order; changes states in place."""
    records: list[Record] = []
    taken = list.__iter__(values)
    try:
        for code, value in zip(codes, held_of(values, taken), strict=True):
            states[code], made = process.process(keys[code], states[code], value)
            records.extend(map(require_record, made))
    except USER_ERRORS as error:
        row = len(values) - length_hint(taken) - 1
        on = f"key {in_words(keys[codes[row]])} and value {shown(value_of(values[row]))}"
        raise executor_error(process, "process", on, error, row) from None
    return records


@described(lambda local: at(local["process"], "timer", f"key {in_words(local['key'])}"))
def timer(process: Process[Any, Any], key: Any, state: Any) -> datetime | None:
    try:
        found = process.timer(key, state)
        if found is not None and not isinstance(found, datetime):
            raise TypeError(f"a timer is a datetime or None, not {found!r}")
    except USER_ERRORS as error:
        raise executor_error(process, "timer", f"key {in_words(key)}", error) from None
    return found


@described(lambda local: at(local["process"], "on_time", f"key {in_words(local['key'])}"))
def emitted_on_time(process: Process[Any, Any], key: Any, state: Any, time: datetime) -> tuple[Any, list[Record]]:
    try:
        state, made = process.on_time(key, state, time)
        records = list(map(require_record, made))
    except USER_ERRORS as error:
        raise executor_error(process, "on_time", f"key {in_words(key)} at {time}", error) from None
    return state, records


@described(lambda local: at(local["process"], "finish", f"key {in_words(local['key'])}"))
def emitted_last(process: Process[Any, Any], key: Any, state: Any) -> list[Record]:
    try:
        records = list(map(require_record, process.finish(key, state)))
    except USER_ERRORS as error:
        raise executor_error(process, "finish", f"key {in_words(key)}", error) from None
    return records
