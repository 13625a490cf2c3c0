"""How a check says that an invariant does not hold."""

from __future__ import annotations

from typing import NoReturn

from dpa.errors import ProtocolError


def require(holds: bool, otherwise: str) -> None:
    """Check an invariant.

    Raises:
        ProtocolError: it does not hold.
    """
    if not holds:
        broken(otherwise)


def broken(what: str) -> NoReturn:
    """An invariant does not hold.

    Raises:
        ProtocolError: always.
    """
    raise ProtocolError(f"invariant broken: {what}")
