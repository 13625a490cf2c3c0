"""Messages on the wire. dpa pickles envelopes and not Ray: one that cannot be read is then an error of the receiver's,
which ends the job, and not a call that Ray drops without a word."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

from ray import cloudpickle

from dpa.execution.states import ObjectPart
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.data import Ack, CreditTransfer
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.exchange import StateTransfer
from dpa.protocol.wire.messages.migration import RangeTransfer

_NOTHING_OF_USERS = (Ack, CreditTransfer, Progress)
"""Frequent messages without objects of users': `pickle` can write them, at a third of cloudpickle's cost."""


@dataclass(frozen=True)
class PickledEnvelope:
    """A pickled envelope. Its large arrays stay outside, so that Ray shares them without a copy. What is shared is
    read-only, so arrays in states of user code, which may change them, stay inside."""

    pickled: bytes
    buffers: list[pickle.PickleBuffer] = field(default_factory=list)

    @staticmethod
    def of(envelope: Envelope) -> PickledEnvelope:
        if isinstance(envelope.message, _NOTHING_OF_USERS):
            return PickledEnvelope(pickle.dumps(envelope, protocol=5))
        buffers: list[pickle.PickleBuffer] = []
        outside = None if _has_states_of_user_code(envelope.message) else buffers.append
        return PickledEnvelope(cloudpickle.dumps(envelope, protocol=5, buffer_callback=outside), buffers)

    @property
    def argument(self) -> PickledEnvelope | bytes:
        """What to call an actor with. Ray sends bytes as they are, and pickles everything else once more."""
        return self if self.buffers else self.pickled

    @property
    def whole(self) -> bytes:
        """Everything in one piece, for relays; copies what is outside."""
        return pickle.dumps(self, protocol=5) if self.buffers else self.pickled

    @property
    def size(self) -> int:
        return len(self.pickled) + sum(buffer.raw().nbytes for buffer in self.buffers)


def opened(argument: PickledEnvelope | bytes) -> Envelope:
    """The envelope that an actor was called with. Raises what a user's value raises when it is unpickled."""
    found: Envelope | PickledEnvelope = pickle.loads(argument) if isinstance(argument, bytes) else argument
    if isinstance(found, PickledEnvelope):
        found = pickle.loads(found.pickled, buffers=found.buffers)
    assert isinstance(found, Envelope)
    return found


def _has_states_of_user_code(message: Message) -> bool:
    return isinstance(message, StateTransfer | RangeTransfer) and isinstance(message.part, ObjectPart)
