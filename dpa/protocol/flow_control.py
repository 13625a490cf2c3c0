"""How far senders may be ahead of a stage, and how its tasks portion their work.

A job file's section `limits` is made of the class, so its fields, defaults, bounds and docstrings are the keys."""

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from dpa._util.durations import FINITE
from dpa.measure.timing import ServicePace

_LEAST_SHOWN = 3  # a window for a quantum of two records: one is in process while they queue
_QUANTA = 4  # that windows make room for where one takes long whatever its records, each with as much for these


@dataclass(frozen=True, kw_only=True)
class FlowControl:
    """Bounds on the records that wait for a stage, and on how long its tasks work before they read their messages."""

    batch_records: Annotated[int, Ge(1)] = 262_144
    """Most records in one batch that is sent, and in one batch of a batch mapper."""
    in_flight_records: Annotated[int, Ge(1)] = 1_048_576
    """Most records of one sender that are emitted and not yet processed; at least `batch_records`."""
    in_flight_mb: Annotated[int, Ge(1)] = 256
    """Most MiB of these records, about."""
    queue_seconds: Annotated[float, Gt(0), FINITE] | None = 0.5
    """Queueing delay to aim at, in seconds: senders keep as many records in flight to a task as it processes in this
    time. Null: as many as the bounds allow; with checkpoints or results by epoch, each task has an even share of them.
    """
    quantum_records: Annotated[int, Ge(1)] = 262_144
    """Most records that a task processes before it reads its messages."""
    quantum_seconds: Annotated[float, Gt(0)] = 0.1
    """Most seconds that such a quantum should take: if records are slow, it has fewer. It may take thrice as long as
    one takes whatever its records."""
    drain_seconds: Annotated[float, Ge(0), FINITE] = 2.0
    """Most seconds for which a leaving task processes its queue before it hands over the rest with its states; with
    `consistency: migrate` it hands over at once."""

    def __post_init__(self) -> None:
        if self.batch_records > self.in_flight_records:
            raise ValueError(
                f"batch_records ({self.batch_records}) must not exceed in_flight_records ({self.in_flight_records})"
            )

    def window(self, service_seconds: float | None, senders: int, pace: ServicePace | None = None) -> int | None:
        """The window of each of `senders` senders at this service time; None if windows do not follow it, or it is
        unknown. `pace`: what the quanta of the task have shown beside that."""
        seconds, most = self.queue_seconds, self.in_flight_records
        if seconds is None or service_seconds is None:
            return None
        overhead, least = (0.0, 1) if pace is None else (pace.overhead, _LEAST_SHOWN if pace.is_due else 1)
        fitting = max(seconds, _QUANTA * overhead) / senders / service_seconds if service_seconds > 0 else most
        return int(max(least, min(most, fitting)))


_FIRST_WINDOW = 64  # records that may be in flight to a receiver about which nothing is known: a few first quanta


@dataclass(frozen=True)
class CreditLimits:
    """Bounds on what one sender may have in flight on one edge.

    Attributes:
        flow: the most records and bytes, to all receivers together, and the queueing delay that windows aim at; without
            one a window is as large as the other bounds let it be.
        first: records that may be in flight to a receiver whose window is not known yet, where windows follow the
            delay; None: as nothing is known of a record's time.
        divided: whether each receiver has an even share of the most records, where windows do not: a cut of the stream
            waits for the longest queue, and the receiver of a hot key would have all that is in flight.
    """

    flow: FlowControl
    first: int | None = None
    divided: bool = False

    @property
    def first_window(self) -> int:
        """Records that may be in flight to a receiver whose window is not known yet."""
        most = self.flow.in_flight_records
        return most if self.flow.queue_seconds is None else min(self.first or _FIRST_WINDOW, most)


_FIRST = 16  # the first quantum: small enough to learn the speed of slow user code soon
_GROWTH = 8.0
"""A quantum is at most this many times as long as the one before: one lucky measurement must not cost seconds."""

_SLOW_GROWTH = 4.0  # the same where quanta take too long, perhaps whatever their records; and by how much others differ
_WORTH = 2.0  # what the records of a quantum should take, by what one takes whatever they are: at 1, noise wins


class QuantumSizer:
    """Adapts the quantum to the measured service time, so that one takes about `quantum_seconds`; or thrice as long as
    one takes whatever its records, if that is longer.

    Attributes:
        size: the most records of the next one.
        together: records that it should have, of several pushes if need be, not to take most of its time without them.
    """

    def __init__(self, flow: FlowControl) -> None:
        self._flow = flow
        self.size = min(_FIRST, flow.quantum_records)
        self.together = 1

    def observe(self, records: int, seconds: float, pace: ServicePace) -> None:
        """After a quantum of `seconds`, which `pace` has been given too."""
        wanted, overhead = self._flow.quantum_seconds, pace.overhead
        net = pace.net * records if overhead else seconds
        most = self.size * (_GROWTH if seconds <= wanted else _SLOW_GROWTH)
        size = min(records * max(wanted - overhead, _WORTH * overhead) / net if net > 0 else math.inf, most)
        is_other = pace.is_due and (records == 1 or overhead > 0)
        if is_other:
            size = 2 if records == 1 else records / _SLOW_GROWTH
        self.size = int(max(1, min(size, self._flow.quantum_records)))
        share = _WORTH * overhead / net if net > 0 else 0.0
        self.together = self.size if is_other else max(1, int(min(records * share, self.size)))
