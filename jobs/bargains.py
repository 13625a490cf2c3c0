"""Bargain detection on a stock market (task allocation paper, section 7.4, figure 7), for `configs/bargains.yaml`.

The paper averages over a window that slides with each trade; here the average is over all trades, so that the result
depends on no order. Prices are in cents and all sums are of integers: they are exact in any order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import BatchReducer, Generator, Groups, batch_filter, batch_mapper
from dpa.sources.distributions import Ranks, names, zipf


def prices(symbols: Ranks, positions: Ranks) -> Ranks:
    """The price in cents of each symbol at each position: waves of two lengths around a level of the symbol's own.

    Triangles of whole numbers, since sines differ between processors in the last digit.
    """
    level = 2_000 + symbols * 7_919 % 30_000
    slow = np.abs((positions + symbols * 104_729) % 1_000_000 - 500_000)
    fast = np.abs((positions + symbols * 1_299_709) % 20_000 - 10_000)
    return level + level * (slow - 250_000) // 5_000_000 + level * (fast - 5_000) // 250_000


class _Market(Generator):
    """What trades and quotes have in common: Zipf-distributed symbols, and prices that move as one."""

    amount: str
    """The column of the number of shares."""

    def __init__(self, symbols: int = 100, exponent: float = 1.2) -> None:
        self.symbols = symbols
        self.exponent = exponent

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        symbols = zipf(random, rows, self.symbols, self.exponent)
        price = prices(symbols, np.arange(start, start + rows))
        price += price * random.integers(-20, 21, rows) // 1_000
        amount = 100 * random.integers(1, 11, rows)
        return pa.record_batch([names(symbols, self.symbols), price, amount], names=["symbol", "price", self.amount])


class Trades(_Market):
    """Trades: `symbol`, `price` in cents, `volume` in shares."""

    amount = "volume"


class Quotes(_Market):
    """Offers to sell: `symbol`, `price` in cents, `size` in shares. Give them another seed than the trades."""

    amount = "size"


class Vwap(BatchReducer):
    """The volume-weighted average price of each key, `vwap`, and the sums that it is the quotient of."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        volume = groups.values.column("volume")
        notional = pc.multiply_checked(groups.values.column("price"), volume)
        return self.merge(replace(groups, values=pa.record_batch({"notional": notional, "volume": volume})))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"notional": groups.sum("notional"), "volume": groups.sum("volume")})

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        notional, volume = states.columns
        vwap = pc.divide(notional.cast(pa.float64()), volume.cast(pa.float64()))
        return pa.record_batch({"notional": notional, "volume": volume, "vwap": vwap})


@batch_filter
def is_bargain(matched: pa.RecordBatch) -> pa.BooleanArray:
    """Which quotes are more than 2 % below the average price."""
    paid = pc.multiply(matched.column("price"), matched.column("volume"))
    return pc.less(pc.multiply(paid, 100), pc.multiply(matched.column("notional"), 98))


@batch_mapper
def savings(bargains: pa.RecordBatch) -> pa.RecordBatch:
    """What each bargain saves against the average price, in cents."""
    a_share = pc.subtract(bargains.column("vwap"), bargains.column("price"))
    return pa.record_batch(
        {"symbol": bargains.column("symbol"), "saving": pc.multiply(bargains.column("size"), a_share)}
    )


class Alerts(BatchReducer):
    """How many `bargains` each key has, and the greatest `saving`."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"bargains": pa.array(groups.sizes()), "saving": groups.max("saving")})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"bargains": groups.sum("bargains"), "saving": groups.max("saving")})
