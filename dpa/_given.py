"""Executors made of what a job is given: instances, classes and functions, checked before they are called."""

import inspect
from collections.abc import Callable, Set
from typing import Any

from dpa.errors import ConfigError
from dpa.executors import (
    AnyMapper,
    AnyReducer,
    BatchMapper,
    BatchReducer,
    FunctionBatchMapper,
    FunctionMapper,
    FunctionReducer,
    Mapper,
    Process,
    Reducer,
    RowsReducer,
    columns_read,
    name_of,
)


def as_mapper(given: Any) -> AnyMapper:
    """Make a mapper of an instance, a class without required arguments, or a function (of a record, or marked
    `batch_mapper`). Raises ConfigError if `given` is none of these, or cannot be called with a mapper's arguments."""
    of_function = FunctionBatchMapper if getattr(given, "dpa_batch_mapper", False) else FunctionMapper
    needs = "mapper: give a dpa.Mapper, a dpa.BatchMapper or a function of a record"
    return _made(given, (Mapper, BatchMapper), needs, of_function)  # type: ignore[no-any-return]


def as_reducer(given: Any) -> AnyReducer:
    """Make a reducer of an instance, a class without required arguments, or a function of two values. Raises
    ConfigError if `given` is none of these, or cannot be called with a reducer's arguments."""
    needs = "reducer: give a dpa.Reducer, a dpa.BatchReducer or a function of two values"
    return _made(given, (Reducer, BatchReducer), needs, FunctionReducer)  # type: ignore[no-any-return]


def as_process(given: Any) -> Process[Any, Any]:
    """Make a process of an instance, or a class without required arguments. Raises ConfigError if it is neither, or
    cannot be called as a process is."""
    return _made(given, (Process,), "process: give a dpa.Process")  # type: ignore[no-any-return]


def _made(
    given: Any, kinds: tuple[type, ...], needs: str, of_function: Callable[[Callable[..., Any]], Any] | None = None
) -> Any:
    """`kinds`: the classes that are allowed; a function is wrapped if there is a wrapper for it."""
    made: Any
    if inspect.isclass(given) and issubclass(given, kinds):
        try:
            made = given()
        except TypeError as error:
            why = f"cannot be made without arguments: {error}; give an instance"
            raise ConfigError(f"{given.__qualname__} {why}") from None
    elif isinstance(given, kinds):
        made = given
    elif of_function is not None and callable(given) and not inspect.isclass(given):
        made = of_function(given)
    else:
        raise ConfigError(f"{given!r} is no {needs}")
    _check_calls(made)
    return made


_CALLS: dict[type, dict[str, tuple[str, ...]]] = {
    Mapper: {"map": ("record",)},
    BatchMapper: {"map_batch": ("batch",)},
    Reducer: {"zero": (), "reduce": ("state", "value"), "merge": ("left", "right"), "finish": ("state",)},
    RowsReducer: {"reduce": ("groups",), "merge": ("groups",), "finish_rows": ("states",)},
    BatchReducer: {"reduce": ("groups",), "merge": ("groups",), "finish": ("states",)},
    Process: {"zero": (), "process": ("key", "state", "value"), "finish": ("key", "state")},
}
"""The methods of each kind of executor, with the names of their arguments; the first kind that fits counts."""


def _check_calls(executor: AnyMapper | AnyReducer | Process[Any, Any]) -> None:
    """Check that an executor's methods, or the function that it wraps, accept the arguments that the runtime passes.
    Raises ConfigError if one does not; the message names the first."""
    calls = next(calls for kind, calls in _CALLS.items() if isinstance(executor, kind))
    if isinstance(executor, Reducer | Process):
        columns_read(executor)
    for method, arguments in calls.items():
        require_arguments(f"{name_of(executor)}.{method}", getattr(executor, method), arguments)
    if isinstance(executor, FunctionMapper | FunctionBatchMapper):
        require_arguments(name_of(executor), executor.function, *calls.values())
    if isinstance(executor, FunctionReducer):
        name = name_of(executor)
        if {"iterable", "axis"} & require_arguments(name, executor.function, calls["merge"]):  # as of `sum`
            what = f"{name} reduces a whole list, and a reducer is called with two values at a time"
            raise ConfigError(f"{what}: give `operator.add` or the like, or the name of a ready-made reducer, as 'sum'")


def require_arguments(name: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> Set[str]:
    """Check that a function accepts the arguments that the runtime passes, by position; returns the names of its
    parameters, if they are known. Raises ConfigError if it does not; `name` is the function's in the message."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no visible signature
        return frozenset()
    try:
        signature.bind(*arguments)
    except TypeError:
        called = f"({', '.join(arguments)})"
        raise ConfigError(f"{name} is called with {called}, and its parameters are {signature}") from None
    return signature.parameters.keys()
