"""What it costs a stream that somebody looks at it: the same job while nobody does, and with its page open in Chromium,
a scrape of its metrics each second, and a client that follows it as `dpa control attach` does; in turn. Chromium is
open all the time, with no page while nobody looks.

Beside it: how long the page of a job that streams takes to its first figures. The browser and the clients share the
machine's processors with the stream.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa

from dpa import Flow, Generator
from dpa.driver.control import RunningJob
from dpa.errors import JobCancelledError
from dpa.telemetry.observers import Observer, Observers
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.harness import Findings, at_most, main, markdown_table, progress

RECORDS, QUICK, ENDLESS = 100_000_000, 2_000_000, 10**10
KEYS, TASKS, REPEATS = 100_000, 2, 7

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync"]
"""Of Chromium: no service of Google's is asked for anything."""

PAINTED = """
new MutationObserver((_, observer) => {
  if (document.querySelector("#overview dd")) {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.painted = performance.now(); }));
  }
}).observe(document, {childList: true, subtree: true});
"""
"""The page notes the milliseconds from the request for it until it has painted figures."""


class Keys(Generator):
    """Rows of a `key`, some far more frequent than others."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        """The next rows."""
        return pa.record_batch({"key": random.zipf(1.5, rows) % KEYS})


def chromium_path() -> str | None:
    """The system's Chromium."""
    return shutil.which("chromium-browser") or shutil.which("chromium")


class Streams(Observer):
    """Knows when a job has begun to stream."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Look at how much it has read."""
        if any(task.processed for task in snapshot.tasks):
            self.begun.set()


class Browser:
    """Chromium, which nobody drives: that would cost as much again."""

    def __enter__(self) -> Browser:
        self._profile = TemporaryDirectory(ignore_cleanup_errors=True)
        options = [*OPTIONS, "--headless", "--remote-debugging-port=0", f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen([str(chromium_path()), *options], stderr=subprocess.DEVNULL)
        noted = Path(self._profile.name) / "DevToolsActivePort"
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.1)
        self._place = f"http://127.0.0.1:{noted.read_text().split()[0]}/json"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._profile.cleanup()

    def see_page(self, address: str, runs: threading.Thread) -> None:
        """Have the page of a job open until it has run."""
        with urlopen(Request(f"{self._place}/new?{quote(address)}", method="PUT")) as answer:
            tab = json.load(answer)["id"]
        runs.join()
        with urlopen(f"{self._place}/close/{tab}"):
            pass


def scrape(address: str, runs: threading.Thread) -> None:
    """Read the metrics each second."""
    while runs.is_alive():
        with suppress(OSError), urlopen(_asked(address, "metrics")) as answer:  # the job may end just now
            answer.read()
        runs.join(1.0)


def follow(_address: str, _runs: threading.Thread) -> None:
    """Follow the job by its snapshots."""
    RunningJob.find("looked").follow(Observers())


def _asked(address: str, path: str) -> Request:
    page, _, token = address.partition("#token=")
    return Request(page + path, headers={"Authorization": f"Bearer {token}"})


def counted(records: int) -> Flow:
    """The job."""
    flow = Flow("looked")
    source = {"format": "generated", "use": "experiments.looked:Keys", "rows": records}
    flow.read(source, parallelism=TASKS).key_by("key").reduce("count", parallelism=TASKS)
    return flow


def streamed(records: int, looks: Sequence[Callable[[str, threading.Thread], None]]) -> float:
    """Records a second of the job while it is looked at, or not."""
    addresses, rates = list[str](), list[float]()
    runs = threading.Thread(
        target=lambda: rates.append(counted(records).run(page=addresses.append).report.records_per_second)
    )
    runs.start()
    while not addresses:
        runs.join(0.01)
    threads = [threading.Thread(target=look, args=(addresses[0], runs)) for look in looks]
    for thread in threads:
        thread.start()
    for thread in (*threads, runs):
        thread.join()
    return rates[0]


def first_figures(records: int) -> float:
    """Seconds from the first request for the page of a job that streams, which starts the process of its door, to its
    first figures in a browser that is open. The job is cancelled then."""
    from playwright.sync_api import sync_playwright

    streams, addresses = Streams(), list[str]()

    def run() -> None:
        with suppress(JobCancelledError):
            counted(records).run(observer=streams, page=addresses.append)

    runs = threading.Thread(target=run, daemon=True)
    with sync_playwright() as playwright:
        tab = playwright.chromium.launch(executable_path=chromium_path(), args=OPTIONS).new_page()
        tab.add_init_script(PAINTED)
        runs.start()
        streams.begun.wait()
        tab.goto(addresses[0])
        page = tab.locator("html[data-painted]")
        page.wait_for(state="attached")
        milliseconds = float(page.get_attribute("data-painted") or "nan")
        RunningJob.find("looked").cancel()
        runs.join()
    return milliseconds / 1_000


def measure(options: argparse.Namespace) -> Findings:
    """Run the job in both ways in turn, and open its page."""
    if chromium_path() is None:
        raise SystemExit("There is no Chromium here: apt-get install chromium")
    records, repeats = (QUICK, 1) if options.quick else (RECORDS, REPEATS)
    alone, looked, figures = list[float](), list[float](), list[float]()
    with Browser() as browser:
        for _ in range(repeats):
            alone.append(streamed(records, ()))
            looked.append(streamed(records, (browser.see_page, scrape, follow)))
            progress(f"{alone[-1]:,.0f} records/s, {looked[-1]:,.0f} looked at")
    for _ in range(repeats):
        figures.append(first_figures(ENDLESS))
        progress(f"figures after {figures[-1]:.2f} s")
    medians = {"alone": median(alone), "looked at": median(looked)}
    targets = [
        at_most("part of the rate that is lost while looked at", 1 - medians["looked at"] / medians["alone"], 0.01),
        at_most("seconds from a request for the page of a job that streams to its first figures", median(figures), 1.0),
    ]
    data = {"alone": alone, "looked_at": looked, "figures": figures}
    return Findings(data, targets, markdown_table(("", "records/s"), [*medians.items()]))


if __name__ == "__main__":
    main("looked", argparse.ArgumentParser(description=__doc__), measure)
