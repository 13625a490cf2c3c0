"""Skew and imbalance: each metric of the papers, defined once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def skew(loads: Sequence[int], even: Sequence[Fraction] | None = None) -> float:
    """The skew S of the DPA paper (equation 2), from 0 (even) to 1 (all on one task).

    S = (W - U) / (M - U), with M the sum of `loads` (records processed by each task), W their maximum and
    U = ceil(M / R) the even share. Where M = U (no records, one record, or one task) nothing can be uneven: S is 0.

    Tasks that come and go have even shares of their own: `even`, one for each of `loads`, as `lives.even_shares` gives
    them. Then S is the greatest excess of a task over its own, by the same formula:

        S = max over tasks i of (x_i - U_i) / (M - U_i), with x_i the load of i and U_i its even share, rounded up

    which is the paper's where all shares are M / R.
    """
    total = sum(loads)
    if even is None:
        excess = [(max(loads, default=0), -(-total // len(loads)) if loads else 0)]
    else:
        excess = [(load, math.ceil(share)) for load, share in zip(loads, even, strict=True)]
    return max(0.0, *((load - share) / (total - share) for load, share in excess if total > share), 0.0)
