"""Keeps pyarrow from importing pandas for nothing. Where pandas is installed, pyarrow imports it with the first array
that it makes, to recognise pandas' objects: a quarter of a second of the start of
the command and of each actor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pyarrow as pa


def import_pandas_late() -> None:
    """Have pyarrow take note of pandas when somebody imports it: before that there are no objects of pandas'.

    To be called in a process in which nothing else runs yet. A pyarrow that is built differently does as it would.
    """
    is_done = "pandas" in sys.modules or any(isinstance(finder, _PandasFinder) for finder in sys.meta_path)
    if is_done or not hasattr(type(getattr(pa.lib, "_pandas_api", None)), "pd"):
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # there is no pandas yet, so pyarrow goes without
    finder.finds = True


class _PandasFinder(MetaPathFinder):
    """Finds pandas as the other finders do, and has pyarrow look for it again when it has been imported.

    Attributes:
        finds: whether it finds any.
    """

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
