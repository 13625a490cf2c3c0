"""The load balancer's policy: load reports in, decisions and changes of the ring out. Sends nothing and owns no
clock."""

from __future__ import annotations

from dpa.balance.decision import Decision, Outcome
from dpa.balance.strategies import Refusal, Strategy
from dpa.balance.trigger import QueueLengthTrigger
from dpa.errors import BalanceError
from dpa.routing.ring import TokenRing


class Balancer:
    """Applies a trigger and a strategy to a ring, at most `max_rounds` times for each reducer's load.

    As in the authors' code, a round counts as used even where the strategy must refuse (algorithms of the DPA paper,
    section 4.2): without that, a reducer that cannot be helped would be tried at every report.
    """

    def __init__(
        self,
        ring: TokenRing,
        strategy: Strategy,
        trigger: QueueLengthTrigger,
        *,
        max_rounds: int,
        check_seconds: float = 0.0,
    ) -> None:
        """`check_seconds` is the least time between two looks at the trigger, and before the first; 0 looks at every
        report."""
        self.ring = ring
        self.epoch = 0
        self._strategy = strategy
        self._trigger = trigger
        self._max_rounds = max_rounds
        self._check_seconds = check_seconds
        self._checked_at: float | None = None
        self._queues: dict[int, int] = {}
        self._rounds = [0] * ring.nodes

    def report(self, reducer: int, queue: int, now: float, epoch: int | None = None) -> Decision:
        """Take in a reducer's queue length (records) at time `now` (seconds), and act on it if it calls for that.

        A queue measured under an older table, numbered `epoch`, is noted and not acted on: what the newest table
        moves is
        still in it. An `applied` decision has changed the ring and advanced the epoch; any other has changed neither.
        """
        self._queues[reducer] = queue
        if epoch is not None and epoch < self.epoch:
            return self._decide(
                reducer, now, Outcome.COOL_DOWN, f"the report is of table {epoch}, before table {self.epoch}"
            )
        if self._checked_at is None and self._check_seconds:
            self._checked_at = now
        if self._checked_at is not None and now - self._checked_at < self._check_seconds:
            waited = now - self._checked_at
            return self._decide(
                reducer, now, Outcome.COOL_DOWN, f"{waited:.3g} s since the last look, not {self._check_seconds:g}"
            )
        self._checked_at = now
        if not self._strategy.acts:
            return self._decide(reducer, now, Outcome.NO_TARGET, "balancing is off")
        verdict = self._trigger.judge(reducer, self._queues)
        if not verdict.overloaded:
            return self._decide(reducer, now, Outcome.BELOW_THRESHOLD, verdict.reason)
        if self._rounds[reducer] >= self._max_rounds:
            used = f"{verdict.reason}, but all {self._max_rounds} rounds of reducer {reducer} are used up"
            return self._decide(reducer, now, Outcome.ROUNDS_USED_UP, used)
        self._rounds[reducer] += 1
        return self.redistribute(reducer, now, because=verdict.reason)

    def redistribute(self, reducer: int, now: float, *, because: str = "asked for") -> Decision:
        """Relieve a reducer whatever its load (the DPA paper's `redistribute(node_id)`, section 4.2).

        Raises:
            BalanceError: there is no such reducer.
        """
        self.require_reducer(reducer)
        proposal = self._strategy.relieve(self.ring, reducer)
        if isinstance(proposal, Refusal):
            return self._decide(reducer, now, proposal.outcome, f"{because}; {proposal.reason}")
        for node, tokens in proposal.tokens.items():
            self.ring.set_tokens(node, tokens)
        self.epoch += 1
        return self._decide(reducer, now, Outcome.APPLIED, f"{because}; {proposal.reason}", epoch=self.epoch)

    def require_reducer(self, reducer: int) -> None:
        """Check that there is such a reducer.

        Raises:
            BalanceError: there is none.
        """
        if not 0 <= reducer < self.ring.nodes:
            raise BalanceError(f"there is no reducer {reducer}; they are numbered 0 to {self.ring.nodes - 1}")

    def _decide(self, reducer: int, now: float, outcome: Outcome, reason: str, *, epoch: int | None = None) -> Decision:
        loads = tuple(self._queues.get(node, 0) for node in range(self.ring.nodes))
        return Decision(now, reducer, outcome, reason, loads, epoch, self._rounds[reducer])
