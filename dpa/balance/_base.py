"""What the options of every strategy have in common: the ring that a stage starts with, and what machines ask of them.

The classes are plain and frozen. A job file's section `balance` is made of them, so their fields, defaults, bounds and
docstrings are its keys (docs/job-files.md)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from dpa.balance.adaptive.rebalance import FirstTable
from dpa.balance.policy import BalancedStage, BalancePolicy
from dpa.measure.load import KeySample
from dpa.routing.hashing import Hashes
from dpa.routing.keys import Key
from dpa.routing.ring import PAPER_TOKEN_FORMAT, TokenRing, token_position
from dpa.routing.table import RoutingTable


@dataclass(frozen=True, kw_only=True)
class LoadReportOptions:
    """When a reducer reports its load to the load balancer, and what a report holds.

    Attributes:
        report_every: dequeued records between two reports; None: their number causes none.
        report_seconds: time after which the next report is due at a tick; None: time causes none.
        report_when_idle: whether a queue that runs empty is reported at once.
        measures_keys: whether senders report the keys of what they offer, and reducers those of their queues and what
            they cost; a report is then due whether or not anything is queued.
    """

    report_every: int | None = None
    report_seconds: float | None = None
    report_when_idle: bool = False
    measures_keys: bool = False


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(ABC):
    """How one stage is balanced."""

    moves_keys: ClassVar[bool] = True
    """Whether a key may get another reducer while the stage runs."""

    strategy: str
    """When and how load moves between reducers."""
    initial_tokens: Annotated[int, Ge(1)]
    """Tokens of each reducer at the start; `halving` needs a power of two."""
    token_format: str = PAPER_TOKEN_FORMAT
    """How a token is named before it is hashed; must contain `{node}` and `{token}`."""
    hash_seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 0
    """Seed of the Murmur3 hash of tokens and keys."""

    def __post_init__(self) -> None:
        if not _names_tokens(self.token_format):
            raise ValueError("token_format must contain {node} and {token}, and no other placeholder")

    def ring(self, reducers: int) -> TokenRing:
        return TokenRing(reducers, self.initial_tokens, token_format=self.token_format, seed=self.hash_seed)

    def first_ring(self, stage: BalancedStage) -> TokenRing:
        """For a policy that goes by tokens: the ring of a planned first table, else a new one."""
        found = None if stage.first is None else self.ring_of(stage.first.table)
        return self.ring(stage.reducers) if found is None else found

    def ring_of(self, table: RoutingTable) -> TokenRing | None:
        """The ring whose snapshot a table is; None if its format or seed is another."""
        return TokenRing.of(table, self.token_format) if table.seed == self.hash_seed else None

    def positions(self, reducer: int) -> Hashes:
        """Of a reducer's first tokens, shape (initial_tokens,)."""
        tokens = range(self.initial_tokens)
        found = [token_position(self.token_format, reducer, token, self.hash_seed) for token in tokens]
        return np.array(found, dtype=np.uint32)

    @property
    def plans_first_table(self) -> bool:
        return False

    def planned(
        self, reducers: int, keys: KeySample, names: Mapping[int, Key], *, may_split: bool = True
    ) -> FirstTable | None:
        """The first table of tasks with keys like those of a sample; `names`: of known keys, by hash. None: the
        ring's."""
        return None

    @abstractmethod
    def policy(self, stage: BalancedStage) -> BalancePolicy: ...

    @property
    def reports(self) -> LoadReportOptions:
        return LoadReportOptions()  # none

    @property
    def forwards_eagerly(self) -> bool:
        """Whether queued records that moved are forwarded as soon as the table comes, not at the head of the queue."""
        return True


@dataclass(frozen=True, kw_only=True)
class TriggeredOptions(BalanceOptions):
    """How often a strategy that redistributes judges whether a reducer is overloaded."""

    check_seconds: Annotated[float, Ge(0)] = 0.5
    """Least seconds between two evaluations of the trigger, and with `halving` and `doubling` before the first; 0: at
    every report, as in the paper's code."""


def _names_tokens(token_format: str) -> bool:
    """Whether a format gives every token of every node another name."""
    try:
        pairs = [(1, 23), (12, 3), (12, 33), (1, 22)]
        return len({token_format.format(node=node, token=token) for node, token in pairs}) == len(pairs)
    except (KeyError, IndexError, ValueError, AttributeError):
        return False
