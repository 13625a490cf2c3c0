"""The kinds of receivers: what takes the records of a stage. A new kind is a file like its neighbours, and a name in
`KINDS`."""

from __future__ import annotations

from dpa._util.declared import Declared
from dpa.execution.receivers._join import JoinReceiver
from dpa.execution.receivers._process import ProcessReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.batch import BatchReceiver, RowsReceiver

KINDS: tuple[type[Receiver], ...] = (RecordReceiver, RowsReceiver, BatchReceiver, ProcessReceiver, JoinReceiver)
"""The kinds that work by key; a subclass stands before what it derives from."""


def receiver_of(executor: object, declared: Declared | None = None) -> Receiver:
    return next(kind for kind in KINDS if isinstance(executor, kind.executors))(executor, declared)
