"""Keeps pyarrow from importing pandas needlessly: with its first array, it imports an installed pandas to recognise
pandas' objects. That costs a quarter of a second at the start of the command and of each actor."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pyarrow as pa

_WITHOUT: set[int] = set()  # threads that cannot import pandas now


def import_pandas_late() -> None:
    """Have pyarrow look for pandas when something else imports it: there are no pandas objects before that.

    Call it before anything else runs in the process. A pyarrow that is built differently is left as it is."""
    is_done = "pandas" in sys.modules or any(isinstance(finder, _PandasFinder) for finder in sys.meta_path)
    if is_done or not hasattr(type(getattr(pa.lib, "_pandas_api", None)), "pd"):
        return
    sys.meta_path.insert(0, _PandasFinder())
    with without_pandas():
        pa.array([0])  # there is no pandas yet, so pyarrow goes without


@contextmanager
def without_pandas() -> Iterator[None]:
    """This thread cannot import pandas in this block, after `import_pandas_late` and if nothing has imported it."""
    _WITHOUT.add(threading.get_ident())
    try:
        yield
    finally:
        _WITHOUT.remove(threading.get_ident())


class _PandasFinder(MetaPathFinder):
    """Finds pandas as the other finders do, and has pyarrow look again once it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if threading.get_ident() in _WITHOUT:
            raise ModuleNotFoundError(f"{fullname} is not to be imported yet", name=fullname)
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                with suppress(ImportError):  # a pandas that is too old for pyarrow is none for it
                    _ = pa.lib._pandas_api.pd

            loader.exec_module = exec_module
        return spec
