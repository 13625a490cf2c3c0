"""A format of results: what a job file may say of it, the sink that writes it, and what reads it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpa.execution.publishing import Publishes
from dpa.sinks.reading import Epochs
from dpa.sinks.sink import Sink


@dataclass(frozen=True)
class Target:
    """What a job file says of where rows go in a format.

    Attributes:
        path: a directory, a URI, or a name that the format knows.
        mode: what becomes of rows that are there: `error`, `overwrite` or `append`.
        args: the format's own options.
        section: the key path of all this, for messages.
        mark: returns the job's configuration, as text to be kept beside the rows.
        publishes: what each epoch publishes; None: there is one result, at the end.
        private: whether others may not read what this process stages.
    """

    path: str
    mode: str = "error"
    args: Mapping[str, Any] = field(default_factory=dict)
    section: str = "output"
    mark: Callable[[], str] = str
    publishes: Publishes | None = None
    private: bool = False


@dataclass(frozen=True)
class Format:
    """A format of results: `dpa.sinks.formats` lists them.

    Attributes:
        name: in a job file.
        sink: makes the sink of a target. Raises TableError if there can be none.
        modes: what `mode` may be.
        noun: what its path names.
        takes_args: whether it has options.
        is_directory: whether a path is a directory or a URI, and no name.
        epochs: finds what was published by epoch at a path, with the format's options; None: it is not read back.
        unread: what that is then, before the path in a message.
        is_at: whether a path that is given without a format is of this one.
        reads_back: whether rows that were published before the end can be read at the end.
    """

    name: str
    sink: Callable[[Target], Sink]
    modes: tuple[str, ...] = ("error", "overwrite", "append")
    noun: str = "a table"
    takes_args: bool = True
    is_directory: bool = True
    epochs: Callable[[str, Mapping[str, Any]], Epochs] | None = None
    unread: str = ""
    is_at: Callable[[str], bool] = lambda path: False
    reads_back: bool = False
