"""Rounds of periodic aggregation (consistent grouping paper, section V-C), as the coordinator and a reducer see them.

Records of one key may be processed by several reducers. In a round each of them hands what it has of a key to the key's
home: the owner by the first routing table, so all agree, whatever tables they hold. A round ends when every reducer has
what all others had, and the next one begins only then: two rounds never mix.
"""

from __future__ import annotations

from collections.abc import Callable

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.machine import Commit, Fold, FoldDone, Machine, Pack, PackDone
from dpa.protocol.messages import COORDINATOR, Address, Aggregate, Aggregated, Partial, reducer
from dpa.protocol.metrics import AggregationStats
from dpa.routing.table import RoutingTable


class Rounds:
    """The coordinator's side: when a round is due, whose share is still to come, and what all rounds came to."""

    def __init__(self, seconds: float | None, reducers: int) -> None:
        """A round is due so many seconds after the last one ended, or the stream began; None: never."""
        self._seconds = seconds
        self._reducers = reducers
        self._round = 0
        self._started_at = self._began_at = self._ended_at = 0.0
        self._shares: dict[int, Aggregated] = {}
        self._stats = AggregationStats()
        self.in_progress = False

    @property
    def stats(self) -> AggregationStats | None:
        """The completed rounds; None if there are to be none."""
        return None if self._seconds is None else self._stats

    def start(self, now: float) -> None:
        """The stream begins."""
        self._started_at = self._ended_at = now

    def due(self, now: float) -> bool:
        """Whether a round should begin."""
        return self._seconds is not None and not self.in_progress and now - self._ended_at >= self._seconds

    def begin(self, now: float) -> Aggregate:
        """Begin the next round; returns what all reducers are to be told."""
        self.in_progress = True
        self._round += 1
        self._began_at = now
        self._shares = {}
        return Aggregate(self._round)

    def note(self, sender: Address, share: Aggregated, now: float) -> Commit | None:
        """Note that a reducer's share is complete; with the last one the round has ended.

        Raises:
            ProtocolError: that share cannot come.
        """
        if not self.in_progress or share.round != self._round or sender.index in self._shares:
            raise ProtocolError(f"{sender} reports a share of round {share.round} that nobody waits for")
        self._shares[sender.index] = share
        if len(self._shares) < self._reducers:
            return None
        self.in_progress = False
        self._ended_at = now
        shares = [self._shares[index] for index in range(self._reducers)]
        self._stats = AggregationStats(
            self._round,
            self._stats.seconds + sum(share.seconds for share in shares),
            self._stats.states + sum(share.states for share in shares),
        )
        return Commit(self._round, self._began_at - self._started_at, tuple(share.rows for share in shares))


class Exchange:
    """A reducer's side: packs the states of other homes, and folds in what the others had of its own keys.

    Steps: waiting (for the next round), asked, packing, collecting, folding. What each message does in each (`-` cannot
    come):

    | message     | waiting               | asked | packing                 | collecting                    | folding |
    | ----------- | --------------------- | ----- | ----------------------- | ----------------------------- | ------- |
    | `Aggregate` | pack at the next turn | -     | -                       | -                             | -       |
    | `Partial`   | keep                  | keep  | keep                    | keep; fold with all, in turn  | -       |
    | `PackDone`  | -                     | -     | hand over, then collect | -                             | -       |
    | `FoldDone`  | -                     | -     | -                       | -                             | report  |

    User code takes turns: it packs or folds between two slices of records, never while it has any.
    """

    def __init__(self, machine: Machine, home: RoutingTable, go_on: Callable[[], None]) -> None:
        """Take the machine's messages of rounds. `home` tells the home of each key; `go_on` looks for what user code is
        to do next."""
        self._machine = machine
        self._index = machine.address.index
        self._home = home
        self._go_on = go_on
        self._round = 0
        self._step = "waiting"
        self._parts: dict[int, StatePart | None] = {}
        self._handed_over = 0
        self._seconds = 0.0
        machine.on(Aggregate, self._aggregate, "streaming")
        machine.on(Partial, self._partial, "streaming")
        machine.on(FoldDone, self._fold_done, "streaming")

    @property
    def idle(self) -> bool:
        """Whether no round is in progress, and none has begun elsewhere."""
        return self._step == "waiting" and not self._parts

    def takes_turn(self) -> bool:
        """Let user code pack or fold if that is due; whether it is at that. Asked whenever it has no records."""
        if self._step == "asked":
            self._step = "packing"
            self._machine.instruct(Pack(self._home))
        elif self._step == "collecting" and self._complete:
            self._step = "folding"
            in_order = [self._parts[index] for index in sorted(self._parts)]
            self._machine.instruct(Fold(self._home, tuple(part for part in in_order if part is not None), self._round))
        return self._step in ("packing", "folding")

    def packed(self, event: PackDone) -> None:
        """The states of other homes have been taken out: hand them over."""
        self._require("packing", "packed states that it was not to pack")
        self._step = "collecting"
        self._handed_over = sum(len(part.keys) for part in event.parts.values())
        self._seconds = event.seconds
        for other in range(self._home.reducers):
            if other != self._index:
                self._machine.send(reducer(other), Partial(self._round, event.parts.get(other)))
        self._go_on()

    @property
    def _complete(self) -> bool:
        """Whether every other reducer has handed over what it had when it packed."""
        return len(self._parts) == self._home.reducers - 1

    def _aggregate(self, sender: Address, message: Aggregate) -> None:
        self._require("waiting", f"is to begin round {message.round} before round {self._round} has ended")
        self._round, self._step = message.round, "asked"
        self._go_on()

    def _partial(self, sender: Address, message: Partial) -> None:
        expected = self._round + (self._step == "waiting")
        if message.round != expected or self._step == "folding" or sender.index in self._parts:
            raise ProtocolError(f"{self._machine.address} cannot take states of round {message.round} from {sender}")
        self._parts[sender.index] = message.part
        self._go_on()

    def _fold_done(self, sender: Address, event: FoldDone) -> None:
        self._require("folding", "folded states that it was not to fold")
        self._step, self._parts = "waiting", {}
        seconds = self._seconds + event.seconds
        self._machine.send(COORDINATOR, Aggregated(self._round, event.rows, self._handed_over, seconds))
        self._go_on()

    def _require(self, step: str, otherwise: str) -> None:
        if self._step != step:
            raise ProtocolError(f"{self._machine.address} {otherwise}")
