"""Every grouping by its options on tables of few and many reducers, and streams of hashes to choose for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.options import BY_KIND, KINDS, ConsistentOptions, GroupingOptions, RingOptions
from dpa.routing.hashing import Hashes
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable

TABLES = {reducers: TokenRing(reducers, 8).snapshot(0) for reducers in (1, 2, 5, 64)}


def _split_table() -> RoutingTable:
    split = KeySplit((1, 3, 4), (0.5, 0.3, 0.2), (1, 0, 0), 1)
    return TableChange.of(TABLES[5], dict.fromkeys(TABLES[5].positions[::3].tolist(), split)).apply(TABLES[5])


@dataclass(frozen=True)
class Case:
    """A grouping by its options, on a table."""

    options: GroupingOptions
    table: RoutingTable

    @property
    def reducers(self) -> int:
        return self.table.reducers

    def create(self, source: int = 3) -> Grouping:
        return self.options.create(self.table, source)


def _cases() -> Iterator[tuple[str, Case]]:
    for kind in KINDS:
        for reducers, table in TABLES.items():
            yield f"{kind} {reducers}", Case(BY_KIND[kind](), table)
    for reducers, table in TABLES.items():
        yield f"consistent proportional {reducers}", Case(ConsistentOptions(proportional=True), table)
        yield f"consistent pooled {reducers}", Case(ConsistentOptions(pooled=True), table)
        yield f"consistent ours {reducers}", Case(ConsistentOptions(proportional=True, pooled=True), table)
    yield "consistent one each", Case(ConsistentOptions(virtual_workers=1), TABLES[5])
    for kind in ("random_choices", "consistent"):
        yield f"{kind} least epsilon", Case(BY_KIND[kind](epsilon=5e-324), TABLES[5])
        yield f"{kind} large epsilon", Case(BY_KIND[kind](epsilon=1e9), TABLES[5])
    for name, options in {
        "one each": {"virtual_workers": 1},
        "least": {"epsilon": 5e-324},
        "large": {"epsilon": 1e9},
    }.items():
        yield f"consistent pooled, {name}", Case(ConsistentOptions(pooled=True, **options), TABLES[5])


CASES = dict(_cases())
SPLIT = Case(RingOptions(), _split_table())
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_case_and_key_splits = pytest.mark.parametrize(
    "case", [*CASES.values(), SPLIT], ids=[*CASES, "ring with key splits"]
)


def stream_of(seed: int, records: int = 3_000, keys: int = 400) -> Hashes:
    """A skewed stream, the ends of the hash's range among its keys."""
    random = np.random.default_rng(seed)
    hashes = random.integers(0, 2**32, keys, dtype=np.uint32)
    hashes[[0, 5, 9]] = 0, 2**32 - 1, 1
    shares = 1 / np.arange(1.0, keys + 1)
    return hashes[random.choice(keys, records, p=shares / shares.sum())]
