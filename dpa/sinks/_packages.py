"""What sinks have in common whose rows another package writes, each epoch of which is there once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.sinks.sink import Sink

EPOCH, SECONDS = "dpa.epoch", "dpa.seconds"
"""What a table says of its newest epoch: the number, and the seconds from the beginning of the stream to its end."""


class PackageSink(Sink):
    """A sink that notes at its place which epochs are there."""

    def __init__(self, mode: str, section: str, publishes: Publishes | None) -> None:
        self.job = uuid.uuid4().hex
        self.publishes = publishes
        self._mode = mode
        self._section = section
        self._begun = ""

    def begin(self) -> None:
        self._begun = uuid.uuid4().hex

    @property
    def _life(self) -> str:
        """Changes whenever the job is begun anew at the start of its input; as the job where there are no epochs."""
        if self.publishes is None:
            return self.job
        return f"{self.job}.epochs" if self.with_checkpoints else f"{self.job}.{self._begun}"

    def _has_rows(self) -> TableError:
        """The error of a table that must have none."""
        remedy = f"set {self._section}.mode to `append` or `overwrite`, or name another table"
        return TableError(f"{self.place} has rows: {remedy}")


@contextmanager
def using(tables: str, package: str, place: str | None) -> Iterator[None]:
    """Use the package that writes `tables` of a kind, such as `Delta`, whose extra has the kind's name.

    Raises:
        TableError: it cannot do it, or is not there.
    """
    try:
        yield
    except ImportError:
        raise TableError(f"{tables} tables need {package}: pip install 'dpa[{tables.lower()}]'") from None
    except TableError:
        raise
    except Exception as error:  # packages raise errors of their own catalogs and languages, and bare ones
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise TableError(f"{said}, at {place}") from None
