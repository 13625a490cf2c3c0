"""Messages on the wire."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpa.execution.states import JoinPart, ObjectPart
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.data import Ack
from dpa.protocol.wire.messages.exchange import StateTransfer
from dpa.protocol.wire.messages.migration import RangeTransfer
from dpa.runtime.actors._pickled import PickledEnvelope, opened

COUNTS = np.array([1])
HASHES = np.array([7], np.uint32)


def received(message: StateTransfer | RangeTransfer) -> Any:
    """What comes of a message whose outside buffers are read-only, as Ray gives them."""
    sent = PickledEnvelope.of(Envelope(Address("sums", 0), Address("sums", 1), 0, message))
    buffers = [pickle.PickleBuffer(memoryview(buffer).toreadonly()) for buffer in sent.buffers]
    message = opened(PickledEnvelope(sent.pickled, buffers)).message
    assert isinstance(message, StateTransfer | RangeTransfer)
    assert message.part is not None
    return message.part.states


@pytest.mark.parametrize("kind", [StateTransfer, RangeTransfer])
def test_user_code_can_change_a_states_array_from_another_task(kind: type[StateTransfer | RangeTransfer]) -> None:
    [state] = received(kind(1, ObjectPart(pa.array(["a"]), [np.zeros(100_000)], COUNTS, COUNTS, HASHES)))
    state += 1.0
    assert state.sum() == 100_000


LARGE = np.arange(100_000)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Ack(3, 5), bytes),
        # as of a join, whose rows no user code changes
        (RangeTransfer(1, JoinPart(pa.array(["a"]), (), LARGE, LARGE)), PickledEnvelope),
    ],
    ids=lambda given: type(given).__name__,
)
def test_arrays_are_shared_and_not_copied_and_bytes_are_sent_where_there_are_none_or_the_whole_is_wanted(
    message: Message, kind: type
) -> None:
    sent = PickledEnvelope.of(Envelope(Address("sums", 0), Address("sums", 1), 7, message))
    assert len(sent.pickled) < 10_000 < sent.size or kind is bytes
    assert isinstance(sent.argument, kind) and isinstance(sent.whole, bytes)
    for given in (sent.argument, sent.whole):
        found = opened(given)
        assert (found.seq, type(found.message)) == (7, type(message))
        if isinstance(found.message, RangeTransfer):
            assert found.message.part is not None and found.message.part.records.tolist() == LARGE.tolist()
