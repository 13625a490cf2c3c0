"""A Prometheus in a process of its own, as Debian's package `prometheus` installs it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from redis_server import program

_SECONDS = 300.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Prometheus:
    """What a running one has scraped."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query: each has its labels in `metric` and a pair in `value`."""
        return self._get("query", query=expression)["result"]  # type: ignore[no-any-return]

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query, once there are any."""
        until = time.monotonic() + _SECONDS
        while not (found := self.query(expression)):
            assert time.monotonic() < until, f"{expression} has no series; targets: {self.targets()}"
            time.sleep(0.2)
        return found

    def wait_for_none(self, expression: str) -> None:
        """Until an instant query has no series. An alert with `for` may have some at first: two samples of one snapshot
        are equal, as those of a job that stands are."""
        until = time.monotonic() + _SECONDS
        while found := self.query(expression):
            assert time.monotonic() < until, f"{expression} has series: {found}"
            time.sleep(0.2)

    def targets(self) -> list[dict[str, Any]]:
        return self._get("targets", state="active")["activeTargets"]  # type: ignore[no-any-return]

    def metadata(self) -> dict[str, list[dict[str, str]]]:
        """The type, help and unit of each family, by its name."""
        return self._get("metadata")  # type: ignore[no-any-return]

    def is_ready(self) -> bool:
        with suppress(OSError), urlopen(f"{self._url}/-/ready", timeout=5) as response:
            return bool(response.status == 200)
        return False

    def _get(self, what: str, **arguments: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{what}?{urlencode(arguments)}", timeout=30) as response:
            return json.load(response)["data"]


@contextmanager
def prometheus(
    directory: Path, configuration: Path, targets: Sequence[str], every: str = "500ms"
) -> Iterator[Prometheus]:
    """One that scrapes `targets` often, by a configuration that is otherwise as it is in its file. What the file names
    is beside it."""
    made = yaml.safe_load(configuration.read_text(encoding="utf-8"))
    made["global"] |= {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    made["scrape_configs"][0]["static_configs"] = [{"targets": list(targets)}]
    written, port = configuration.with_name("often.yml"), free_port()
    written.write_text(yaml.safe_dump(made), encoding="utf-8")
    command = [program("prometheus"), f"--config.file={written}", f"--web.listen-address=127.0.0.1:{port}"]
    command += [f"--storage.tsdb.path={directory / 'series'}", "--log.level=warn"]
    with (directory / "log").open("w") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            until = time.monotonic() + _SECONDS
            while not (found := Prometheus(port)).is_ready():
                assert server.poll() is None and time.monotonic() < until, (directory / "log").read_text()
                time.sleep(0.1)
            yield found
        finally:
            server.terminate()
