"""The kinds of receivers: what takes the records of a stage. A new kind is a file like its neighbours, and a name in
`KINDS`."""

from typing import Any

from dpa._util.declared import Declared
from dpa.execution.receivers._join import JoinReceiver
from dpa.execution.receivers._process import ProcessReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers._sessions import SessionStates
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.batch import BatchReceiver, RowsReceiver
from dpa.execution.receivers.windows import WindowStates
from dpa.execution.states import States

KINDS: tuple[type[Receiver], ...] = (RecordReceiver, RowsReceiver, BatchReceiver, ProcessReceiver, JoinReceiver)
"""The kinds that work by key; a subclass stands before what it derives from."""


def receiver_of(executor: object, declared: Declared | None = None) -> Receiver:
    return next(kind for kind in KINDS if isinstance(executor, kind.executors))(executor, declared)


def store_of(receiver: Receiver) -> States[Any]:
    """An empty store, with one for each window where records are in windows."""
    if receiver.windowing is None:
        return receiver.own_store()
    return SessionStates(receiver) if receiver.has_sessions else WindowStates(receiver)
