"""Skew and imbalance: each metric of the papers, defined once."""

from __future__ import annotations

from collections.abc import Sequence


def skew(loads: Sequence[int]) -> float:
    """The skew S of the DPA paper (equation 2), from 0 (even) to 1 (all on one reducer).

    S = (W - U) / (M - U), with M the sum of `loads` (records processed by each reducer), W their maximum and
    U = ceil(M / R) the even share. Where M = U (no records, one record, or one reducer) nothing can be uneven: S is 0.
    """
    total, most = sum(loads), max(loads, default=0)
    even = -(-total // len(loads)) if loads else 0
    return (most - even) / (total - even) if total > even else 0.0
