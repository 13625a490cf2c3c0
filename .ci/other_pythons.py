"""Print the oldest and the newest supported Python that this machine has beside the one that runs this, a path a line.

`setup.cfg` names the supported versions. Looked at are programs such as `python3.10` on PATH, and pyenv's versions.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

SETUP = Path(__file__).parents[1] / "setup.cfg"


def supported(setup: Path = SETUP) -> list[str]:
    """The versions that the classifiers name, such as `3.10`, the oldest first."""
    parser = configparser.ConfigParser()
    parser.read(setup, encoding="utf-8")
    found = re.findall(r"Python :: (3\.\d+)$", parser["metadata"]["classifiers"], re.MULTILINE)
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def found(version: str) -> str | None:
    """The path of an interpreter of this version, or None."""
    return next((path for path in _candidates(version) if _version(path) == version), None)


def _candidates(version: str) -> Iterator[str]:
    on_path = which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = which("pyenv")
    if pyenv:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
        yield from sorted(str(path) for path in Path(root, "versions").glob(f"{version}.*/bin/python"))


def _version(path: str) -> str:
    """What an interpreter says that it is; a shim of pyenv that leads to none says nothing."""
    command = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def main() -> None:
    """Print them, or say on standard error that there is none."""
    own = "{}.{}".format(*sys.version_info)
    paths = [path for version in supported() if version != own and (path := found(version))]
    for path in dict.fromkeys([*paths[:1], *paths[-1:]]):
        print(path)
    if not paths:
        others = ", ".join(version for version in supported() if version != own)
        print(f"unit tests run on Python {own} alone: none of {others} is here", file=sys.stderr)


if __name__ == "__main__":
    main()
