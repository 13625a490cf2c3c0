"""What a field of an options class may be, as far as `annotated_types` has no word for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Finite:
    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {**handler(source), "allow_inf_nan": False}


FINITE = _Finite()
"""Neither infinite nor no number."""
