"""The columns of rows before there are any, as far as they can be known: what is checked before a run, and what a
result without rows has.

Batch executors are run on no rows at all, which shows every type. Functions of a record give no columns before they are
called; a per-record reducer is asked for the result of its `zero`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from dpa._util.declared import Declared
from dpa._util.inference import no_rows
from dpa.errors import ConfigError, ExecutorError
from dpa.routing.keys import key_type


class Extent(IntEnum):
    """How much is known of the columns of some rows: some of which there may be more, all names, or the types too."""

    SOME, NAMES, ALL = 0, 1, 2


@dataclass(frozen=True)
class Known:
    """What is known of the columns of some rows. The type null stands for one that is not known.

    Attributes:
        schema: the columns that an empty table of such rows has.
        extent: how much that is.
    """

    schema: pa.Schema
    extent: Extent = Extent.ALL

    @property
    def has_names(self) -> bool:
        """Whether the rows have no other columns, so that a missing one is an error."""
        return self.extent >= Extent.NAMES

    def with_names(self, names: Iterable[str]) -> Known:
        """With null columns of these names, if there may be more columns than are known."""
        if self.has_names:
            return self
        missing = dict.fromkeys(name for name in names if name not in self.schema.names)
        return Known(pa.schema([*self.schema, *((name, pa.null()) for name in missing)]), self.extent)


NOTHING_KNOWN = Known(pa.schema([]), Extent.SOME)


def as_declared(found: Known, declared: Declared | None, giver: str, names: Sequence[str] = ()) -> Known:
    """The declared columns of rows that the method `giver` gives, after the key columns with these names; `found` where
    none are declared. Raises ConfigError where they contradict `found`."""
    if declared is None:
        return found
    key = [found.schema.field(name) for name in names]
    for field in declared.schema:
        kept = key_type(field.type) if field.name in names else field.type
        if kept != field.type:
            raise ConfigError(f"the key column {field.name!r} is kept as {kept}: declare it so", declared.place)
    if found.extent is Extent.ALL:
        try:
            declared.conformed(no_rows(found.schema), giver, names)
        except ExecutorError as error:
            raise ConfigError(error.message, error.key) from None
    others = [field for field in declared.schema if field.name not in names]
    own = [declared.schema.field(field.name) if field.name in declared.schema.names else field for field in key]
    return Known(pa.schema([*own, *others]))
