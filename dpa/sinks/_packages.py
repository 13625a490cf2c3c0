"""Packages that write tables: how what they raise becomes an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpa.errors import TableError


@contextmanager
def using(tables: str, package: str, place: str | None) -> Iterator[None]:
    """Use the package that writes `tables` of a kind, such as `Delta`, whose extra has the kind's name.

    Raises:
        TableError: it cannot do it, or is not there.
    """
    try:
        yield
    except ImportError:
        raise TableError(f"{tables} tables need {package}: pip install 'dpa[{tables.lower()}]'") from None
    except TableError:
        raise
    except Exception as error:  # packages raise errors of their own catalogs and languages, and bare ones
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise TableError(f"{said}, at {place}") from None
