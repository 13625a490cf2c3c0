"""Per-record reducers: the state of a key is one Python object."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import pyarrow as pa

from dpa._util.declared import Declared
from dpa.aggregates import Distinct, TopK
from dpa.errors import DpaError, ExecutorError
from dpa.execution._object_table import ObjectTable
from dpa.execution._tolerant_calls import Tolerant
from dpa.execution.block import Block, Values, object_array
from dpa.execution.calls import fold, zero
from dpa.execution.failures import USER_ERRORS, at, described, executor_error
from dpa.execution.keys import key_columns
from dpa.execution.receivers.base import Extent, Known, Receiver, as_declared
from dpa.execution.schemas import differs, result_column
from dpa.execution.states import ObjectPart, Reduced, States, result_table
from dpa.executors import FunctionReducer, Record, Reducer, columns_read, name_of
from dpa.routing.keys import KeyName, in_words, names_of, to_python
from dpa.tolerance import Tolerance

_ONLY_READ = (Reducer.finish, TopK.finish, Distinct.finish)
"""Implementations of `finish` that do not change a state, so a preview needs no copy."""


class RecordReceiver(Receiver):
    """A per-record reducer."""

    executors = (Reducer,)
    takes_objects = True
    has_row_a_key = True

    executor: Reducer[Any, Any]

    @property
    def can_merge(self) -> bool:
        return type(self.executor).merge is not Reducer.merge

    @property
    def reads(self) -> tuple[str, ...]:
        return columns_read(self.executor)

    def columns(self, key: KeyName, blocks: Sequence[Block], extent: Extent) -> Known:
        block = blocks[0]  # rows of one union have the same columns
        try:
            schema = result_table(self.executor, key, block.keys, self._results(block)).schema
        except (DpaError, *USER_ERRORS):
            schema = pa.table(key_columns(block.keys, key)).schema
        known = Extent.NAMES if isinstance(self.executor, TopK) else max(extent, Extent.NAMES)
        found = Known(schema, Extent.SOME if self.is_opaque else known)
        return as_declared(found, self.declared, f"{name_of(self.executor)}.finish", names_of(key))

    def _results(self, block: Block) -> dict[str, pa.Array]:
        if isinstance(self.executor, FunctionReducer):  # it has no zero; what it returns takes the place of a value
            values = block.columns
            return {"value": values.column(0) if values.num_columns == 1 else pa.nulls(0)}
        found = self.executor.finish(self.executor.zero())
        named = found if isinstance(found, dict) else {"value": found}
        return {name: result_column(name, [None], [value]).slice(1) for name, value in named.items()}

    def own_store(self) -> States[Any]:
        return RecordStates(self.executor, self.declared, self.tolerance)

    def combined(self, block: Block) -> Values:
        keys = to_python(block.keys)
        states = [zero(self.executor, key) for key in keys]
        fold(self.executor, "reduce", states, block.codes.tolist(), block.objects(), keys)
        return object_array(states)


class RecordStates(ObjectTable, States[ObjectPart]):
    """States are Python objects."""

    def __init__(
        self, reducer: Reducer[Any, Any], declared: Declared | None = None, tolerance: Tolerance | None = None
    ) -> None:
        super().__init__(partial(zero, reducer))
        self._reducer = reducer
        self._declared = declared
        self._tolerant = None if tolerance is None else Tolerant(self, reducer, self._reduced, tolerance)

    def reduce(self, block: Block) -> None:
        if self._tolerant is not None and not block.combined:
            self._tolerant.process(block)
            return
        method = "merge" if block.combined else "reduce"
        fold(self._reducer, method, self.states, self.add_block(block), block.objects(), self.keys)

    def _reduced(self, places: list[int], values: list[Any]) -> list[Record]:
        fold(self._reducer, "reduce", self.states, places, values, self.keys)
        return []

    def merge(self, part: ObjectPart) -> None:
        fold(self._reducer, "merge", self.states, self.add_part(part).tolist(), part.states, self.keys)

    def preview(self, key: KeyName) -> Reduced:
        """The user's `finish` works on a copy of each state, one at a time.

        A copy takes 0.2 us for a number, 1 to 3 us for a small tuple, dict or list, and 7 us for a dataclass. `pickle`
        takes half of that, but cannot look up classes that the driver defined in `__main__`."""
        finish = self._reducer.finish
        only_read = type(self._reducer).finish in _ONLY_READ
        return self._finished(key, finish if only_read else lambda state: finish(deepcopy(state)))

    def finish(self, key: KeyName) -> Reduced:
        self.take_all()
        return self._finished(key, self._reducer.finish)

    @described(lambda local: at(local["self"]._reducer, "finish", f"key {in_words(local['name'])}"))
    def _finished(self, key: KeyName, finish: Callable[[Any], Any]) -> Reduced:
        finished = []
        for name, state in zip(self.keys, self.states, strict=True):
            try:
                finished.append(finish(state))
            except USER_ERRORS as error:
                raise executor_error(self._reducer, "finish", f"key {in_words(name)}", error) from None
        keys = self.column
        table = result_table(self._reducer, key, keys, self._columns(finished), self._declared)
        return Reduced(table, keys, self.records, self.mapped)

    def _columns(self, finished: list[Any]) -> dict[str, pa.Array]:
        keys = self.keys
        if not all(isinstance(item, dict) for item in finished):
            finished = [{"value": item} for item in finished]
        first = finished[0] if finished else {}
        odd = next((place for place, item in enumerate(finished) if item.keys() != first.keys()), None)
        try:
            if odd is not None:
                raise differs("columns", ", ".join(first), keys[0], ", ".join(finished[odd]), keys[odd])
            return {name: result_column(name, keys, [item[name] for item in finished]) for name in first}
        except ExecutorError as error:
            raise ExecutorError(f"{name_of(self._reducer)}.finish: {error}") from None
