"""Messages on the wire. An envelope is pickled here and not by Ray: one that cannot be read again is then an error of
the receiver's, which ends the job, and not a call that Ray drops without a word."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

from ray import cloudpickle

from dpa.protocol.messages import Envelope


@dataclass(frozen=True)
class PickledEnvelope:
    """A pickled envelope; its large arrays stay outside, so that Ray shares them without a copy."""

    pickled: bytes
    buffers: list[pickle.PickleBuffer] = field(default_factory=list)

    @staticmethod
    def of(envelope: Envelope) -> PickledEnvelope:
        """Pickle an envelope."""
        buffers: list[pickle.PickleBuffer] = []
        return PickledEnvelope(cloudpickle.dumps(envelope, protocol=5, buffer_callback=buffers.append), buffers)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.pickled) + sum(buffer.raw().nbytes for buffer in self.buffers)

    def open(self) -> Envelope:
        """The envelope; raises whatever a user's value raises that cannot be unpickled."""
        envelope: Envelope = pickle.loads(self.pickled, buffers=self.buffers)
        return envelope
