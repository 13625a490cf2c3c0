"""The page of a real job on Ray, in a real browser: what it shows while a hot key makes a stage late, after a request,
after a death, and at the end. With `DPA_SCREENS=docs` in the environment, its pictures are those of docs/door.md."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium
from PIL import Image

ROOT = Path(__file__).parents[2]
JOB = """
name: visits
python_path: ["{root}"]
input:
  format: generated
  use: jobs.lines:Lines
  args: {{words: 3000, exponent: 1.6}}
  rows: null
  rate: 20000
mapper: jobs.wordcount:words
key: word
reducer: {{use: "jobs.paced:PacedCounts", args: {{seconds: 0.0001}}}}
combiner: false
parallelism: {{mappers: 2, reducers: 3}}
checkpoint: {{path: "{directory}/saved", every: 1s}}
"""
PATIENCE = 300_000  # milliseconds that a page may take to show something


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """The address of the page of a job, for as long as the block, which ends the job."""
    (directory / "job.yaml").write_text(JOB.format(root=ROOT, directory=directory), encoding="utf-8")
    command = [sys.executable, "-m", "dpa.run", str(directory / "job.yaml"), "--ui", "--progress", "none"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as job:
        try:
            assert job.stderr is not None
            said = next(line for line in job.stderr if "the job's page: " in line)
            yield said.partition(": ")[2].strip()
        finally:
            if job.poll() is None:
                job.terminate()
            job.wait(60)


def picture(tab: Any, name: str, height: int = 860) -> None:
    """Of the top of the page, if pictures are wanted."""
    if wanted := os.environ.get("DPA_SCREENS"):
        tab.set_viewport_size({"width": 1280, "height": height})
        path = ROOT / wanted / f"page-{name}.png"
        tab.screenshot(path=path)
        Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(path, optimize=True)
        tab.set_viewport_size({"width": 1280, "height": 860})


def pid_of(address: str, stage: str) -> int:
    """The process of a stage's first task."""
    place, _, token = address.partition("/#token=")
    request = urllib.request.Request(f"{place}/status", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        status = json.load(answer)
    [found] = [each for each in status["stages"] if each["name"] == stage]
    return int(found["processes"][0]["pid"])


@pytest.mark.slow
def test_the_page_of_a_running_job(tmp_path: Path) -> None:
    wrong: list[str] = []
    with chromium() as browser, running(tmp_path) as address:
        tab = browser.new_page(viewport={"width": 1280, "height": 860})
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(address)
        tab.locator("header", has_text=re.compile("visits *running *stream")).wait_for()
        secret = address.partition("#token=")[2]  # the word stands on the page: decisions move tokens
        assert secret and secret not in tab.url + tab.content() and tab.evaluate("document.cookie") == ""

        # Reducers are slower than what mappers send: these are held up.
        tab.get_by_role("link", name=re.compile("^mapper, .* is held up")).wait_for()
        tab.get_by_role("link", name=re.compile("^reducer, .* in the queue, limits the job")).wait_for()
        tab.locator("#decisions").get_by_text(re.compile("of task|Task")).first.wait_for()
        tab.locator("#h-graph").evaluate("heading => heading.scrollIntoView()")
        picture(tab, "backpressure", height=440)
        tab.locator("#checkpoints").get_by_text("written").wait_for()
        tab.goto(re.sub(r"/#.*", "/#stage=reducer&section=stage", address))
        tab.locator("figure", has_text="Queues in records").wait_for()
        keys = tab.get_by_role("table", name="Most frequent keys")
        keys.get_by_role("row", name=re.compile("^a0 +4[0-9]% +[0-9]+% to [0-9]+% +[012]")).wait_for()
        assert tab.evaluate("document.activeElement.id") == "h-stage"
        picture(tab, "hot-key", height=1000)
        tab.evaluate("scrollTo(0, 0)")
        picture(tab, "running")

        # By the page a stage gets another task.
        tab.locator("select[name=stage]").select_option("reducer")
        tab.locator("input[name=tasks]").fill("4")
        tab.get_by_role("button", name="Scale", exact=True).click()
        tab.locator("#yes").click()
        tab.get_by_text("Scale: reducer has 4 tasks").wait_for()
        tab.locator("#decisions").get_by_text("tasks: 3 came: asked for.").wait_for()

        # The job outlasts the death of a process, and so does the page.
        os.kill(pid_of(address, "reducer"), signal.SIGKILL)
        tab.get_by_text("The job restarted: generation 1 has begun").wait_for()
        tab.locator("#recoveries").get_by_role("row").nth(1).wait_for()
        tab.locator("header", has_text="generation 1").wait_for()
        tab.locator("#stages").get_by_role("row", name=re.compile("^reducer")).wait_for()
        tab.goto(re.sub(r"/#.*", "/#section=checkpoints", address))
        tab.locator("#checkpoints").get_by_text("open epoch").wait_for()
        tab.locator("#h-recoveries").evaluate("heading => heading.scrollIntoView()")
        picture(tab, "recovery", height=560)

        # It is ended by the page.
        tab.get_by_role("button", name="Cancel job").click()
        tab.locator("#yes").click()
        tab.get_by_text("The job has ended").wait_for()
        assert tab.locator("#control").count() == 0
    assert wrong == []
