"""Which store of states suits what a stage runs."""

from __future__ import annotations

from collections.abc import Sequence

from dpa._util.declared import Declared
from dpa.execution.batch_states import BatchStates
from dpa.execution.join_states import JoinStates
from dpa.execution.mapping import Receiver
from dpa.execution.process_states import NoStates, ProcessStates
from dpa.execution.record_states import RecordStates
from dpa.execution.states import States
from dpa.executors import BatchReducer, Process
from dpa.operators import JoinOptions, RowOperator


def states_for(receiver: Receiver, operators: Sequence[RowOperator] = (), declared: Declared | None = None) -> States:
    """An empty store for a reducer, a process, a join or, for None, a stage that keeps no state but changes its rows
    by `operators`; `declared` are the columns that the rows of a reducer or a process are declared to have."""
    match receiver:
        case BatchReducer():
            return BatchStates(receiver, declared)
        case Process():
            return ProcessStates(receiver, declared)
        case JoinOptions():
            return JoinStates(receiver)
        case None:
            return NoStates(operators)
        case _:
            return RecordStates(receiver, declared)
