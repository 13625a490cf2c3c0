"""Keeps pyarrow from importing pandas needlessly: with its first array, it imports an installed pandas to recognise
pandas' objects. That costs a quarter of a second at the start of the command and of each actor."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pyarrow as pa


def import_pandas_late() -> None:
    """Have pyarrow look for pandas when something else imports it: there are no pandas objects before that.

    Call it before anything else runs in the process. A pyarrow that is built differently is left as it is.
    """
    is_done = "pandas" in sys.modules or any(isinstance(finder, _PandasFinder) for finder in sys.meta_path)
    if is_done or not hasattr(type(getattr(pa.lib, "_pandas_api", None)), "pd"):
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # there is no pandas yet, so pyarrow goes without
    finder.finds = True


class _PandasFinder(MetaPathFinder):
    """Finds pandas as the other finders do, and has pyarrow look again once it is imported. Finds none before `finds`
    is set."""

    def __init__(self) -> None:
        self.finds = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if not self.finds:
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
