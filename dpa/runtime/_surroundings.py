"""The environment, working directory and module search path of a driver. Processes that Ray starts have those with
which Ray was started; what the driver has changed since is sent to them."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages", "lib-dynload")


def own_paths() -> tuple[str, ...]:
    """The module search path of this process without what is installed, which each machine has its own of."""
    installed = {*sysconfig.get_paths().values()}
    found = [str(Path(path).absolute()) for path in sys.path if path not in installed]
    return tuple(path for path in found if not path.endswith((*_INSTALLED, ".zip")))


@dataclass(frozen=True)
class Surroundings:
    """Those of a process.

    Attributes:
        variables: the environment; None for a variable that is to be removed.
        directory: the working directory; empty: any.
        path: the module search path.
    """

    variables: Mapping[str, str | None] = field(repr=False)
    directory: str
    path: tuple[str, ...]

    @staticmethod
    def here() -> Surroundings:
        return Surroundings(dict(os.environ), str(Path.cwd()), tuple(sys.path))

    def since(self, before: Surroundings) -> Surroundings | None:
        """These, with only those variables that have changed since `before`; None: nothing has."""
        if self == before:
            return None
        gone: dict[str, str | None] = dict.fromkeys(before.variables.keys() - self.variables.keys())
        changed = {name: value for name, value in self.variables.items() if before.variables.get(name) != value}
        return Surroundings(gone | changed, self.directory, self.path)

    def take(self) -> None:
        """Have this process, one of Ray's, begin with them."""
        left = os.environ.get("PYTHONPATH", "").split(os.pathsep) if "PYTHONPATH" in self.variables else []
        for name, value in self.variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        time.tzset()
        tempfile.tempdir = None  # `TMPDIR` may have changed
        if self.directory:
            os.chdir(self.directory)
        sys.path[:] = [*self.path, *(path for path in sys.path if path not in {*self.path, *left})]
        importlib.invalidate_caches()
