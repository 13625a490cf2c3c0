"""The executors that steps of a job file name, each made what its key needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dpa._util.declared import Declared, schema_named, type_names
from dpa.config import ExecutorConfig, JobFile
from dpa.driver._loading import loaded
from dpa.errors import ConfigError
from dpa.execution.receivers import KINDS
from dpa.executors import BatchMapper, Mapper, name_of

Objects = Mapping[str, Any]
"""Executors and tables that a job built in Python was given, by the key path at which a job file would name them."""

T = TypeVar("T")

_OPERATIONS: tuple[tuple[tuple[type, ...], str, tuple[str, ...]], ...] = (
    *((kind.executors, kind.noun, (kind.word,)) for kind in KINDS),
    ((Mapper,), "a mapper of keys and values, of which steps have none", ("flat_map",)),
    ((BatchMapper,), "a batch mapper", ("map", "flat_map")),
)
"""What executors that are objects are called, and the operations that they are for."""


def fitting(file: JobFile, objects: Objects, path: str, section: ExecutorConfig, kind: Callable[[Any], T]) -> T:
    """The executor whose section stands at a key path, made what the key needs by `kind`.

    Raises:
        ConfigError: it cannot be found or made, or is for another key.
    """
    made = objects[path] if path in objects else loaded(file, path, section)
    try:
        return kind(made)
    except ConfigError as error:
        _, dot, word = path.rpartition(".")
        raise file.error(path, (dot and _of_another(made, word)) or str(error)) from None


def declared(executor: Any, schema: Mapping[str, str] | None, at: Callable[[str], str], word: str) -> Declared | None:
    """The columns that the rows of a step are declared to have, by the step itself, or else by its executor's `schema`.

    Args:
        executor: as the job names it.
        schema: what the step declares, or None.
        at: returns the key path of a key of the step.
        word: the key that names the executor.

    Raises:
        ConfigError: the executor's is no schema.
    """
    if schema is not None:
        return Declared(at("schema"), schema_named(schema))
    own = getattr(executor, "schema", None)
    if own is None:
        return None
    try:
        return Declared(at(word), schema_named(type_names(own)))
    except ValueError as error:
        raise ConfigError(f"{name_of(executor)}.schema: {error}") from None


def _of_another(made: Any, word: str) -> str | None:
    """The operation that an executor is for, if that is another one than `word`."""
    of = made if isinstance(made, type) else type(made)
    for kinds, what, operations in _OPERATIONS:
        if issubclass(of, kinds) and word not in operations:
            return f"{name_of(made)} is {what}: use {_alternatives(operations)} for it"
    marked = {"batch_filter": ("filter",), "batch_mapper": ("map", "flat_map")}
    for mark, operations in marked.items():
        if getattr(made, f"dpa_{mark}", False) and word not in operations:
            return f"{name_of(made)} is marked `{mark}`, which is for {_alternatives(operations)}, not for `{word}`"
    return None


def _alternatives(operations: tuple[str, ...]) -> str:
    return " or ".join(f"`{word}`" for word in operations)
