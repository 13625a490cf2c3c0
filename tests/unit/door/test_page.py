"""The page in a real browser: of a report from its file, and of a running job from a server that a test leads."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from aiohttp import web
from chromium import chromium

from dpa.door.page import page_of
from dpa.door.view import RunView, View, view_of_report, view_of_tables
from dpa.measure.load import MeasuredKey
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.epochs import EpochStats
from dpa.protocol.wire.metrics import CheckpointStats, EventTimeStats, Snapshot
from dpa.result import OutputReport, RecoveryReport, ReferenceReport, Report
from dpa.result.text import Fact, Table
from dpa.telemetry.tracker import RunTracker
from dpa.tolerance import ErrorCount

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


def hostile() -> Report:
    """Markup wherever text can be."""
    made = samples.report(
        name=HOSTILE,
        status="mismatch",
        error=HOSTILE,
        hot_keys=samples.hot_keys((HOSTILE, *samples.NASTY_KEYS)),
        first_table=HOSTILE,
        redistributions=(samples.decision(reason=HOSTILE),),
        decisions=(samples.decision(reason=HOSTILE),),
        reference=ReferenceReport(True, False, 1, (HOSTILE,)),
        output=OutputReport(HOSTILE, 1, (HOSTILE,)),
        config={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        warnings=(HOSTILE,),
    )
    return replace(made, errors=(ErrorCount(HOSTILE, HOSTILE, True, 3, HOSTILE),), dead_letters=HOSTILE)


def failed() -> Report:
    """All that only some runs have."""
    made = samples.graph_report(status="failed", error="Traceback:\n  ValueError: <oops>")
    reached = EventTimeStats(1_700_000_000_000_000, source="trades", channel="3", task=2)
    stages = tuple(replace(stage, event_time=reached) for stage in made.stages)
    death = RecoveryReport(0, 1.5, "priced 2", "n1", "killed by signal 9", 1_000, 2.5, 1.0, 1.8)
    return replace(
        made,
        stages=stages,
        recoveries=(death,),
        checkpoints=CheckpointStats(4, 1, 0.2, 3_000_000, 900),
        epochs=EpochStats(4, 0.2, 0.1),
        errors=(ErrorCount("priced", "ValueError", True, 3, "bad price: 'x'"),),
        dead_letters="out/letters",
        warnings=("priced 1 has been at one step for 60 s",),
    )


REPORTS: dict[str, Callable[[], Report]] = {
    "usual": samples.report,
    "graph": samples.graph_report,
    "empty": samples.empty_report,
    "without series": lambda: samples.report(samples=()),
    "many tasks": lambda: samples.report(200, samples=samples.load_samples(200, 4)),
    "hostile": hostile,
    "failed": failed,
}
every_report = pytest.mark.parametrize("made", REPORTS.values(), ids=REPORTS)


def running(*snapshots: Snapshot, recoveries: tuple[RecoveryReport, ...] = ()) -> View:
    view, tracker = RunView({"name": "wordcount", "backend": "ray"}, began=1_700_000_000.0), RunTracker()
    for snapshot in snapshots:
        view.update(replace(tracker.update(snapshot), recoveries=recoveries))
    made: View = json.loads(json.dumps(view.document))
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@contextmanager
def opened(browser: Any, url: str) -> Iterator[Any]:
    """A tab; fails the test if a script raised there, or was not allowed to run, or anything was to be fetched."""
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    tab, wrong = context.new_page(), []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on(
        "console",
        lambda said: said.type == "error" and not re.search("ERR_|401", said.text) and wrong.append(said.text),
    )
    try:
        tab.goto(url)
        yield tab
        assert wrong == []
    finally:
        context.close()


def file_of(view: View, directory: Path) -> str:
    path = directory / "report.html"
    path.write_text(page_of(view), encoding="utf-8")
    return path.as_uri()


class Job:
    """Serves a page as a door does, for as long as the block."""

    def __init__(self) -> None:
        self.view: View = {}
        self.asked: list[Any] = []
        self.url, self.token = "", "0123456789abcdef"
        self._queues: list[asyncio.Queue[tuple[str, Any] | None]] = []
        self._ready: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Job:
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._ready.result(10)}/#token={self.token}"
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def show(self, view: View) -> None:
        """The whole, as a client sees that was too slow."""
        self._send("view", view)

    def change(self, patch: View) -> None:
        self._send("patch", patch)

    def end(self, view: View) -> None:
        self.show(view)
        self._send("end", {})

    def disconnect(self) -> None:
        self._loop.call_soon_threadsafe(lambda: [queue.put_nowait(None) for queue in self._queues])

    def _send(self, event: str, data: Any) -> None:
        if event == "view":
            self.view = data
        self._loop.call_soon_threadsafe(lambda: [queue.put_nowait((event, data)) for queue in self._queues])

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        made = web.Application()
        made.add_routes([web.get("/", self._file), web.get("/events", self._events), web.get("/{name}", self._file)])
        made.add_routes([web.post("/control", self._control)])
        made.middlewares.append(self._guarded)
        runner = web.AppRunner(made, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._ready.set_result(runner.addresses[0][1])
        await self._ended.wait()
        await runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path in ("/events", "/control") and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise web.HTTPUnauthorized(text="`dpa control ui JOB` shows the address")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "page.html")
        kind = {"html": "text/html", "css": "text/css", "js": "text/javascript"}[name.rpartition(".")[2]]
        text = resources.files("dpa.door.page").joinpath(name).read_text("utf-8")
        policy = "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
        return web.Response(text=text, content_type=kind, headers={"Content-Security-Policy": policy})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()
        self._queues.append(queue)
        await response.write(b":\n\n" + _event("view", self.view))
        while (found := await queue.get()) is not None:
            await response.write(_event(*found))
        self._queues.remove(queue)
        return response

    async def _control(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.json_response({"refused": False, "text": "reducer has 6 tasks"})


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@pytest.fixture
def job() -> Iterator[Job]:
    with Job() as made:
        made.view = running(*samples.snapshots(steps=20)[:15])
        yield made


# --- the file


class _Scripts(HTMLParser):
    """The scripts and the policy of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.kinds: list[str | None] = []
        self.policy = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        assert not {name for name in known if name.startswith("on") or name in ("src", "style")}
        if tag == "script":
            self.kinds.append(known.get("type"))
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""


@every_report
def test_the_file_has_its_data_its_own_script_and_a_policy_for_nothing_else(made: Callable[[], Report]) -> None:
    found = _Scripts(page_of(view_of_report(made())))
    assert found.kinds == ["application/json", None]
    assert found.policy.startswith("default-src 'none'; ") and "unsafe" not in found.policy


WIDTHS = (1600, 400)


def assert_fits(tab: Any) -> None:
    """In windows of all widths."""
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@every_report
def test_the_file_opens_and_fits(browser: Any, made: Callable[[], Report], tmp_path: Path) -> None:
    report = made()
    with opened(browser, file_of(view_of_report(report), tmp_path)) as tab:
        assert tab.locator("h1").inner_text() == view_of_report(report)["job"]["name"]
        assert tab.locator("header span").first.inner_text() == report.status
        assert_fits(tab)
        tab.goto(tab.url + "#stage=*")
        assert tab.locator("#stage h3").count() in (0, len(report.stages))
        assert_fits(tab)


def test_what_is_in_the_data_is_text(browser: Any, tmp_path: Path) -> None:
    with opened(browser, file_of(view_of_report(hostile()), tmp_path)) as tab:
        assert tab.title() == f"{HOSTILE}: mismatch"
        assert tab.locator("img").count() == 0
        assert tab.locator("script").count() == 2
        assert tab.locator("body").inner_text().count("</script><script>") > 10


def test_tables_of_no_run_are_a_page_too(browser: Any, tmp_path: Path) -> None:
    figures = Table("", ("", "#A", "#B"), [("rows", "3,000,000", "3,000,001"), (HOSTILE, "", "1")])
    facts = [Fact("A", HOSTILE, "ok, out/report.json"), Fact("B", "clicks", "ok")]
    view = view_of_tables(HOSTILE, facts, {"Figures": figures, "Configured differently": Table("", ("key",), [])})
    with opened(browser, file_of(view, tmp_path)) as tab:
        assert tab.locator("h2").all_inner_texts() == ["Overview", "Figures"]
        tab.locator("#t-Figures").get_by_role("row", name="rows 3,000,000 3,000,001").wait_for()
        assert_fits(tab)
        for scheme in SCHEMES:
            tab.emulate_media(color_scheme=scheme)
            assert tab.evaluate(_FAINT) == [], scheme
        assert tab.locator("img").count() == 0 and tab.locator("h1").inner_text() == HOSTILE


def test_the_page_has_what_is_known_of_a_run_and_fetches_nothing(browser: Any, tmp_path: Path) -> None:
    asked: list[str] = []
    with opened(browser, "about:blank") as tab:
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(file_of(view_of_report(failed()), tmp_path))
        text = " ".join(tab.locator("main").inner_text().split())
        assert [url[:5] for url in asked if not url.startswith("data:")] == ["file:"]
    for expected in (
        "Traceback: ValueError: <oops>",
        "priced limits the run: its busiest task, 0, is busy 97% of the time",
        "Keys of task 3 went to other tasks: queue of 131,072 exceeds",
        "Task 1 kept its keys: its load is below the threshold: queue of 41,000",
        "2023-11-14 22:13:20 held by trades, channel 3, which task 2 reads",
        "written 4 1 failed",
        "0 1.50 s priced 2 n1 1,000 1.00 s 1.80 s 2.50 s killed by signal 9",
        "priced ValueError 3 dead letters bad price: 'x' Dead letters are in out/letters.",
        "priced 1 has been at one step for 60 s",
        "the 7.8% 1,877,450 1,876,550 to 1,878,550 hot",
        "strategy: adaptive",
        "stream mapping and reducing 5.00 s",
    ):
        assert expected in text


def test_series_are_drawn_with_their_redistributions(browser: Any, tmp_path: Path) -> None:
    with opened(browser, file_of(view_of_report(samples.report()), tmp_path)) as tab:
        queues = tab.locator("figure", has_text="Queues in records").first
        assert queues.locator("path.mark").count() == 4
        assert queues.locator(".legend").inner_text().split("\n") == [f"task {task}" for task in range(4)]
        said = queues.locator("svg[role=img]").get_attribute("aria-label")
        assert re.fullmatch(r"Queues in records, .*: at the end task 0 0, task 1 0, .*; at most 122k", said)


def test_long_tables_are_folded_and_cut(browser: Any, tmp_path: Path) -> None:
    made = samples.report(600, samples=())
    with opened(browser, file_of(view_of_report(made), tmp_path)) as tab:
        table = tab.locator("details", has_text="Tasks of reducer: 600 rows")
        assert not table.locator("table").is_visible()
        table.locator("summary").click()
        table.locator("table").wait_for()
        assert table.locator("tbody tr").count() == 500
        assert table.locator("caption").inner_text() == "Tasks of reducer: the first 500 of 600"


# --- its state, the keyboard, and who cannot see it


def test_the_address_has_the_chosen_stage_and_section(browser: Any, tmp_path: Path) -> None:
    url = file_of(view_of_report(samples.graph_report()), tmp_path)
    with opened(browser, url) as tab:
        assert tab.locator("#h-stage").inner_text() == "Stage priced"  # it limits the run
        tab.locator("#stages a", has_text="quotes").click()
        tab.get_by_role("heading", name="Stage quotes").wait_for()
        assert tab.url.endswith("#stage=quotes&section=stage")
        tab.go_back()
        tab.get_by_role("heading", name="Stage priced").wait_for()
    with opened(browser, f"{url}#stage=small&section=decisions") as tab:
        assert tab.locator("#h-stage").inner_text() == "Stage small"
        assert tab.evaluate("document.activeElement.id") == "h-decisions"


def test_every_part_is_reached_by_the_keyboard(browser: Any, tmp_path: Path) -> None:
    with opened(browser, file_of(view_of_report(samples.graph_report()), tmp_path)) as tab:
        reached = set()
        for _ in range(60):
            tab.keyboard.press("Tab")
            reached.add(tab.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.ariaLabel"))
        assert {"#section=stages", "#section=t-Time", "#stage=quotes&section=stage", "#quiet=no"} <= reached
        assert {"Graph of the stages", "The whole run", "Tasks of priced"} <= reached
        tab.locator(".graph a").nth(1).focus()
        tab.keyboard.press("Enter")
        tab.get_by_role("heading", name="Stage quotes").wait_for()


def test_a_screen_reader_finds_landmarks_headings_and_tables(browser: Any, tmp_path: Path) -> None:
    with opened(browser, file_of(view_of_report(failed()), tmp_path)) as tab:
        for role in ("banner", "main", "status"):
            assert tab.get_by_role(role).count() == 1
        assert tab.get_by_role("navigation", name="Sections").count() == 1
        assert tab.get_by_role("heading", level=1).count() == 1
        sections = tab.get_by_role("heading", level=2).all_inner_texts()
        assert [tab.get_by_role("region", name=name, exact=True).count() for name in sections] == [1] * len(sections)
        table = tab.get_by_role("table", name="The whole run")
        assert table.get_by_role("columnheader", name="blocked").count() == 1
        assert table.get_by_role("rowheader", name="priced").count() == 1
        box = tab.get_by_role("link", name=re.compile("^priced, 3 tasks, .*, limits the job, S 0.00, blocked 1"))
        assert box.count() == 1
        assert tab.evaluate("document.documentElement.lang") == "en"


# Of all words that are seen, those whose contrast with what is behind them is below WCAG's 4.5.
_FAINT = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (let up = node; up; up = up.parentElement) {
      const colour = parse(getComputedStyle(up).backgroundColor);
      if (colour[3] !== 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const hasWords = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!hasWords || node.closest("title, script, style")) continue;
    const isDrawn = node.namespaceURI.endsWith("svg"), style = getComputedStyle(node);
    const box = node.closest("a")?.querySelector("rect.box");
    const back = isDrawn && box ? parse(getComputedStyle(box).fill) : behind(node);
    const [one, other] = [light(parse(isDrawn ? style.fill : style.color)), light(back)].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) found.push([node.outerHTML, contrast]);
  }
  return found;
}"""


SCHEMES: dict[Any, bool] = {"light": True, "dark": False}
"""Of colours, and whether the paper is white."""


def test_all_words_stand_out_from_what_is_behind_them(browser: Any, job: Job, tmp_path: Path) -> None:
    for url in (file_of(view_of_report(failed()), tmp_path), job.url):
        with opened(browser, url) as tab:
            tab.locator("#stages table").wait_for()
            for scheme, is_white in SCHEMES.items():
                tab.emulate_media(color_scheme=scheme)
                paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (paper == "rgb(255, 255, 255)") == is_white
                assert tab.evaluate(_FAINT) == [], scheme


def test_decisions_that_were_only_counted_are_said(browser: Any, tmp_path: Path) -> None:
    refused, said = (
        {"below_threshold": 150, "cool_down": 3},
        "No keys moved. Decisions: 150 below threshold, 3 cool down.",
    )
    for counts, words in ((refused, said), ({}, "Nothing was decided.")):
        made = samples.report(decisions=(), redistributions=(), decision_counts=counts)
        with opened(browser, file_of(view_of_report(made), tmp_path)) as tab:
            assert words in tab.locator("#decisions").inner_text()


# --- a running job


def test_a_running_job_is_shown_as_it_changes_though_a_connection_breaks(browser: Any, job: Job) -> None:
    with opened(browser, job.url) as tab:
        tab.get_by_text("3.50 s · ray").wait_for()
        job.change({"at": 4.0, "stages": {REDUCER: {"tasks": {"1": {"node": "n7"}}}}})
        tab.get_by_text("4.00 s · ray").wait_for()
        assert "n7" in tab.locator("#stage table").first.inner_text()
        job.change({"stages": {REDUCER: {"tasks": {"1": None}}}})
        tab.locator("#stages").get_by_role("row", name=re.compile("^reducer 3 ")).wait_for()
        hottest = (MeasuredKey("a0", 0.4398, 0.41, 0.463, 2, split=True), MeasuredKey("b1", 0.145, 0.13, 0.16, 0))
        job.view = running(samples.with_stage(samples.snapshot(4.5), REDUCER, hottest=hottest))
        job.disconnect()
        tab.get_by_text("4.50 s · ray").wait_for()
        assert tab.locator("#said").inner_text() == ""
        keys = tab.get_by_role("table", name="Most frequent keys")
        keys.get_by_role("row", name=re.compile("^a0 +44% +41% to 46% +2 split$")).wait_for()
        keys.get_by_role("row", name=re.compile("^b1 +14% +13% to 16% +0$")).wait_for()


def test_what_the_reader_does_outlasts_a_change(browser: Any, job: Job) -> None:
    with opened(browser, job.url) as tab:
        tab.locator("#stages a", has_text=MAPPER).click()
        tab.locator("input[name=tasks]").fill("7")
        job.change({"at": 4.0})
        tab.get_by_text("4.00 s · ray").wait_for()
        assert tab.locator("input[name=tasks]").input_value() == "7"
        assert tab.evaluate("document.activeElement.name") == "tasks"
        assert tab.locator("#h-stage").inner_text() == f"Stage {MAPPER}"


def test_the_token_stays_in_the_tab_and_outlasts_a_reload(browser: Any, job: Job) -> None:
    with opened(browser, f"{job.url}&stage={MAPPER}") as tab:
        tab.get_by_text("3.50 s · ray").wait_for()
        assert tab.url.endswith(f"/#stage={MAPPER}") and tab.evaluate("document.cookie") == ""
        tab.reload()
        tab.get_by_text("3.50 s · ray").wait_for()
        job.token = "fedcba9876543210"
        job.disconnect()
        tab.get_by_text("`dpa control ui JOB` shows the address").wait_for()
        assert tab.locator("#control").count() == 0
        tab.evaluate(f"location.hash = 'token={job.token}'")
        tab.locator("#control").wait_for()


def test_a_page_without_its_job_says_so(browser: Any) -> None:
    with Job() as job:
        job.view = running(samples.snapshot(1.0))
        with opened(browser, job.url) as tab:
            tab.get_by_text("1.00 s · ray").wait_for()
            tab.route("**/events", lambda route: route.abort())
            job.disconnect()
            tab.get_by_text("No connection to the job: it may have ended.").wait_for()
            assert tab.locator("#stages table").is_visible()


def test_a_restart_is_said_and_all_numbers_begin_again(browser: Any, job: Job) -> None:
    with opened(browser, job.url) as tab:
        tab.locator("figure path.c0").first.wait_for()
        died = RecoveryReport(0, 5.0, "reducer 1", "", "killed", 7)
        again = replace(samples.snapshot(0.0), generation=1)
        job.show(running(*samples.snapshots(steps=4), again, recoveries=(died,)))
        tab.get_by_text("The job restarted: generation 1 has begun").wait_for()
        assert tab.locator("figure").count() == 0
        assert "generation 1" in tab.locator("header").inner_text()
        assert tab.locator("#recoveries").get_by_role("row", name="0 5.00 s").count() == 1


@pytest.mark.parametrize("status", ["ok", "failed", "mismatch"])
def test_the_end_of_the_job_is_said_and_its_report_shown(browser: Any, job: Job, status: str) -> None:
    with opened(browser, job.url) as tab:
        tab.locator("#control").wait_for()
        job.end(json.loads(json.dumps(view_of_report(samples.report(status=status)))))
        tab.get_by_text(f"The job has ended: {status}.").wait_for()
        assert tab.locator("#control").count() == 0
        assert tab.locator("header span").first.inner_text() == status
        assert tab.locator("#configuration").count() == 1


def test_a_job_is_asked_after_a_confirmation(browser: Any, job: Job) -> None:
    with opened(browser, job.url) as tab:
        tab.locator("select[name=stage]").select_option(REDUCER)
        tab.locator("input[name=tasks]").fill("6")
        tab.get_by_role("button", name="Scale").click()
        dialog = tab.get_by_role("dialog", name="Have reducer have 6 tasks?")
        dialog.get_by_role("button", name="Back").click()
        assert job.asked == []
        tab.get_by_role("button", name="Scale").press("Enter")
        dialog.get_by_role("button", name="Scale").press("Enter")
        tab.get_by_text("Scale: reducer has 6 tasks").wait_for()
        assert job.asked == [{"scale": {"stage": REDUCER, "tasks": 6}}]


def test_a_job_can_be_asked_for_all_there_is(browser: Any, job: Job) -> None:
    asked: dict[str, Any] = {
        "Finish": {"finish": {}},
        "Stop": {"stop": {}},
        "Cancel job": {"cancel": {}},
        "Move": {"move": {"stage": REDUCER, "tasks": [0, 2], "nodes": ["n1"]}},
        "Cancel change": {"cancel": {"stage": REDUCER}},
    }
    with opened(browser, job.url) as tab:
        for button, request in asked.items():
            tab.locator("select[name=stage]").select_option(REDUCER)
            tab.locator("input[name=tasks]").fill("0, 2")
            tab.locator("input[name=nodes]").fill("n1")
            tab.get_by_role("button", name=button, exact=True).click()
            tab.locator("#yes").click()
            tab.get_by_text(f"{button}: reducer has 6 tasks").wait_for()
            assert job.asked.pop() == request and not job.asked
