"""What it costs a stream that somebody looks at it: the same job while nobody does, and with its page open in Chromium,
a scrape of its metrics each second, and a client that follows it as `dpa control attach` does; in turn.

Beside it: how long the page of a running job takes to its first figures, and how many bytes a second the page of a
large job receives. The browser and the clients share the machine's processors with the stream.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import replace
from statistics import median
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa

from dpa import Flow, Generator
from dpa.config import DoorConfig
from dpa.door.opening import Door
from dpa.driver.control import RunningJob
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import RunTracker
from experiments.harness import Findings, at_most, main, markdown_table, progress

RECORDS, QUICK = 20_000_000, 2_000_000
KEYS, TASKS = 100_000, 2
STAGES, MANY, REPORT_SECONDS = ("read", "map", "count"), 256, 6.0
"""Of the large job, the tasks of each, and seconds between two reports of a task."""


class Keys(Generator):
    """Rows of a `key`, some far more frequent than others."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        """The next rows."""
        return pa.record_batch({"key": random.zipf(1.5, rows) % KEYS})


def see_page(address: str, runs: threading.Thread, figures: list[float]) -> None:
    """Open the page until the job has run; note the seconds from the request until it shows figures."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium-browser") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab, began = browser.new_page(), time.perf_counter()
        tab.goto(address)
        tab.locator("#overview dd").first.wait_for()
        figures.append(time.perf_counter() - began)
        runs.join()


def scrape(address: str, runs: threading.Thread, _figures: list[float]) -> None:
    """Read the metrics each second."""
    while runs.is_alive():
        with suppress(OSError), urlopen(_asked(address, "metrics")) as answer:  # the job may end just now
            answer.read()
        runs.join(1.0)


def follow(_address: str, _runs: threading.Thread, _figures: list[float]) -> None:
    """Follow the job by its snapshots."""
    RunningJob.find("looked").follow(Unobserved())


def _asked(address: str, path: str) -> Request:
    page, _, token = address.partition("#token=")
    return Request(page + path, headers={"Authorization": f"Bearer {token}"})


def streamed(records: int, figures: list[float] | None) -> float:
    """Records a second of the job. It is looked at if there is a list for the seconds that its page takes."""
    flow = Flow("looked")
    source = {"format": "generated", "use": "experiments.looked:Keys", "rows": records}
    flow.read(source, parallelism=TASKS).key_by("key").reduce("count", parallelism=TASKS)
    addresses, rates = list[str](), list[float]()
    runs = threading.Thread(target=lambda: rates.append(flow.run(page=addresses.append).report.records_per_second))
    runs.start()
    while figures is not None and not addresses:
        runs.join(0.01)
    looks = [] if figures is None else [see_page, scrape, follow]
    threads = [threading.Thread(target=look, args=(addresses[0], runs, figures)) for look in looks]
    for thread in threads:
        thread.start()
    for thread in (*threads, runs):
        thread.join()
    return rates[0]


def _task(stage: str, task: int, count: int) -> TaskStats:
    counted = TaskStats(stage, task, read=count, processed=count, emitted=(count,), queue=count % 977)
    return replace(counted, latency_p99=count % 97 / 100, busy_seconds=count / 1e4, waiting_seconds=count / 3e4)


def bytes_a_second(seconds: int, draw: np.random.Generator) -> float:
    """What the page of the large job receives after its first view, of two snapshots a second."""
    tracker, sizes = RunTracker(), list[int]()
    counts = draw.integers(1_000, 2_000, (len(STAGES), MANY))

    def receive(address: str) -> None:
        with urlopen(_asked(address, "events")) as events:
            sizes.extend(map(len, events))

    with Door("large", DoorConfig()) as door:
        reading = threading.Thread(target=receive, args=(door.address,))
        for half in range(2 * seconds):
            reported = draw.random(counts.shape) < 0.5 / REPORT_SECONDS
            counts = counts + reported * draw.integers(1_000, 2_000, counts.shape)
            rows = zip(STAGES, counts.tolist(), strict=True)
            tasks = {name: tuple(_task(name, *each) for each in enumerate(row)) for name, row in rows}
            stages = tuple(StageSnapshot(name, "streaming", each) for name, each in tasks.items())
            door.update(tracker.update(Snapshot("stream", half / 2, 0, stages)))
            if not half:
                reading.start()
            time.sleep(0.5)
    reading.join()
    return sum(sizes[3:]) / seconds  # the first event has three lines


def measure(options: argparse.Namespace) -> Findings:
    """Run the job in both ways in turn, and measure the stream of views."""
    records, repeats, seconds = (QUICK, 1, 4) if options.quick else (RECORDS, options.repeats, 20)
    figures, alone, looked = list[float](), list[float](), list[float]()
    for _ in range(repeats):
        alone.append(streamed(records, None))
        looked.append(streamed(records, figures))
        progress(f"{alone[-1]:,.0f} records/s, {looked[-1]:,.0f} looked at; page after {figures[-1]:.2f} s")
    medians = {"alone": median(alone), "looked at": median(looked)}
    received = bytes_a_second(seconds, np.random.default_rng(options.seed))
    targets = [
        at_most("part of the rate that is lost while looked at", 1 - medians["looked at"] / medians["alone"], 0.01),
        at_most("seconds from a request for the page to its first figures", median(figures), 1.0),
        at_most(f"bytes a second of the views of {len(STAGES)} x {MANY} tasks", received, 20_000),
    ]
    data = {"alone": alone, "looked_at": looked, "figures": figures, "bytes_a_second": received}
    return Findings(data, targets, markdown_table(("", "records/s"), [*medians.items()]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    main("looked", parser, measure)
