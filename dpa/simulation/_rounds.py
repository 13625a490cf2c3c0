"""What rounds of aggregation publish in a simulated run, held against what reducers had really processed: invariant 8
of the design (docs/design.md).

Counts by key are kept here from the blocks that user code was given, not from the machines' own books. A reducer packs
once in each round, so its packs number the rounds.
"""

from __future__ import annotations

from collections import Counter

from dpa.execution.block import Block
from dpa.execution.keys import key_column
from dpa.execution.states import Reduced, StatePart
from dpa.protocol.wire.instructions import Extract, Instruction, ProcessBlock
from dpa.routing.keys import Key, KeyName, to_python
from dpa.routing.table import RoutingTable
from dpa.simulation._require import require


class PublishedRounds:
    """Checks each share when it is published, and each round when it is committed.

    Attributes:
        committed: the shares of each committed round, by reducer.
    """

    def __init__(self, home: RoutingTable, key: KeyName) -> None:
        """`home` is the first routing table, `key` the name of the key column, or of several."""
        self.committed: list[tuple[Reduced, ...]] = []
        self._home = home
        self._key = key
        self._homes: dict[Key, int] = {}
        self._processed: list[Counter[Key]] = [Counter() for _ in range(home.reducers)]
        self._at_packs: list[list[Counter[Key]]] = [[] for _ in range(home.reducers)]
        self._shares: dict[tuple[int, int], Reduced] = {}
        self._before: Counter[Key] = Counter()

    def begins_with(self, reducer: int, part: StatePart) -> None:
        """A reducer has these states from the start."""
        for key, records in zip(to_python(part.keys), part.records.tolist(), strict=True):
            self._processed[reducer][key] += records
            self._homes[key] = self._home.key_lookup(key)

    def works(self, reducer: int, instruction: Instruction) -> None:
        """User code carries out an instruction."""
        if isinstance(instruction, ProcessBlock):
            self._process(reducer, instruction.block)
        elif isinstance(instruction, Extract):
            self._at_packs[reducer].append(Counter(self._processed[reducer]))

    def _process(self, reducer: int, block: Block) -> None:
        for key, records in zip(to_python(block.keys), block.counts().tolist(), strict=True):
            self._processed[reducer][key] += records
            if key not in self._homes:
                self._homes[key] = self._home.key_lookup(key)

    def published(self, reducer: int, round: int, share: Reduced) -> None:
        """A reducer publishes its share: every record that any reducer had processed when it packed, and none twice."""
        found = self._records_of(share)
        for other, packs in enumerate(self._at_packs):
            early = f"reducer {reducer} published round {round} before reducer {other} had packed"
            require(len(packs) >= round, early)
        least = sum((packs[round - 1] for packs in self._at_packs), Counter())
        most = sum(self._processed, Counter())
        strange = sorted(repr(key) for key in found if self._homes[key] != reducer)
        require(not strange, f"reducer {reducer} published keys of other homes in round {round}: {strange}")
        for key in (key for key, home in self._homes.items() if home == reducer):
            records, what = found[key], f"of key {key!r} round {round}"
            require(records >= least[key], f"{what} lacks {least[key] - records} records")
            require(records <= most[key], f"{what} has {records} records, but only {most[key]} were processed")
        self._shares[round, reducer] = share

    def commit(self, round: int) -> None:
        """All shares of a round are complete."""
        require(round == len(self.committed) + 1, f"round {round} came after round {len(self.committed)}")
        missing = [index for index in range(self._home.reducers) if (round, index) not in self._shares]
        require(not missing, f"round {round} was committed without the shares of reducers {missing}")
        shares = tuple(self._shares.pop((round, index)) for index in range(self._home.reducers))
        found: Counter[Key] = Counter()
        for share in shares:
            found.update(self._records_of(share))
        lost = sorted(repr(key) for key, records in self._before.items() if found[key] < records)
        require(not lost, f"round {round} has less than the one before it of keys {lost}")
        self.committed.append(shares)
        self._before = found

    def _records_of(self, share: Reduced) -> Counter[Key]:
        keys = to_python(key_column(share.table, self._key))
        return Counter(dict(zip(keys, share.records.tolist(), strict=True)))
