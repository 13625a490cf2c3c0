"""Equal parts of the keys, given to reducers in proportion to their capacity."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float64]


def apportion(weights: Weights, parts: int) -> npt.NDArray[np.int64]:
    """The number of the `parts` that each reducer gets: at least one, else by its weight, largest remainders first;
    shape of `weights`."""
    free = parts - len(weights)
    exact = weights / weights.sum() * parts
    above = np.maximum(exact - 1, 0)
    if above.sum() == 0:
        above = np.ones_like(above)
    due = above / above.sum() * free
    whole = np.floor(due).astype(np.int64)
    remainder = np.argsort(whole - due, kind="stable")[: free - int(whole.sum())]
    whole[remainder] += 1
    shares: npt.NDArray[np.int64] = whole + 1
    return shares


def reassign(owners: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Change `owners` in place so that each reducer has the number of parts wanted. Returns the parts that moved.

    No more parts move than must: those with the highest numbers of each reducer that has too many.
    """
    surplus = np.bincount(owners, minlength=len(wanted)) - wanted
    given = [np.flatnonzero(owners == reducer)[-surplus[reducer] :] for reducer in np.flatnonzero(surplus > 0)]
    if not given:
        return np.empty(0, dtype=np.int64)
    moved = np.concatenate(given)
    owners[moved] = np.repeat(np.arange(len(wanted)), np.maximum(-surplus, 0))
    return moved
