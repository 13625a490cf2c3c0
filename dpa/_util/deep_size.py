"""How much memory Python objects take."""

from __future__ import annotations

import pickle
from itertools import chain, islice
from sys import getsizeof
from typing import Any

_LOOKED_AT = 32
"""Of what is in one object as many are looked at, and a quarter of that in each of these; the others are taken to be
like them."""

_DEPTH = 6
"""So deep inside another is an object looked at."""

_FLAT = (str, bytes, bytearray, int, float, complex, type(None), type)


def deep_size(found: Any, most: int = _LOOKED_AT, depth: int = _DEPTH) -> float:
    """Bytes of an object and of those in it, as `sys.getsizeof` has them. Of an object that does not show what is in
    it, at least as many as it has when pickled."""
    own = float(getsizeof(found))
    if isinstance(found, _FLAT) or not depth:
        return own
    if isinstance(found, dict):
        some = [*chain.from_iterable(islice(found.items(), most))]
        inside = 2 * len(found)
    elif isinstance(found, list | tuple):
        some, inside = [*found[:: len(found) // most + 1]], len(found)
    elif isinstance(found, set | frozenset):
        some, inside = [*islice(found, most)], len(found)
    elif getattr(found, "__dict__", None):
        some, inside = [vars(found)], 1
    else:
        return max(own, _pickled_size(found))
    return own + inside / max(1, len(some)) * sum(deep_size(item, max(1, most // 4), depth - 1) for item in some)


def _pickled_size(found: Any) -> float:
    try:
        return float(len(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)))
    except Exception:  # a user's class may raise anything
        return 0.0
