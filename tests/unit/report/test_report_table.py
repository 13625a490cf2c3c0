"""The end of a run: a summary of few lines, all details with `verbose`, and no key or error disturbs the terminal."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import report_samples as samples
from rich.cells import cell_len

from dpa.door.view import view_of_report
from dpa.protocol.wire.epochs import EpochPhase, EpochStats, EpochWait, PhaseStats
from dpa.protocol.wire.metrics import AggregationStats, CheckpointStats
from dpa.report import show, show_table
from dpa.result import (
    GroupingReport,
    HotKey,
    KeyDistribution,
    OutputReport,
    RecordCounts,
    RecordTimes,
    RecoveryReport,
    ReferenceReport,
    Report,
    Result,
    SkewReport,
)
from dpa.result.text import Table, span
from dpa.tolerance import ErrorCount

FILES = [Path("out/report/report.json"), Path("out/report/resolved.yaml"), Path("out/report/report.html")]


def shown(report: Report, width: int = 80, verbose: bool = True) -> str:
    stream = io.StringIO()
    show(report, stream, files=FILES, width=width, verbose=verbose)
    return stream.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (ReferenceReport(True, True, 10), "reference: match"),
        (ReferenceReport(True, False, 10, ("key a: 5, reference 6",)), "reference: MISMATCH"),
        (ReferenceReport(), "reference: not checked"),
    ],
)
@pytest.mark.parametrize("verbose", [False, True])
def test_a_line_of_stdout_is_exactly_the_verdict(
    reference: ReferenceReport, expected: str, verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    show(samples.report(reference=reference), verbose=verbose)
    assert capsys.readouterr().out.splitlines().count(expected) == 1


def test_the_verdict_has_no_colour_and_a_pipe_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    show(samples.report(), terminal)
    assert "\x1b[" in terminal.getvalue()
    assert "reference: match" in terminal.getvalue().splitlines()
    assert all(line.isprintable() for line in shown(samples.report()).split("\n"))


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("reducers", [2, 16, 64, 1_000])
@pytest.mark.parametrize("rounds", [0, 4, 100])
def test_the_table_fits_its_width_and_stays_short(width: int, reducers: int, rounds: int) -> None:
    lines = shown(samples.report(reducers, rounds, samples=()), width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) < 140
    assert not any("…" in line for line in lines)


def test_a_table_to_copy_names_from_has_them_whole(capsys: pytest.CaptureFixture[str]) -> None:
    run = "/".join(f"{part:08d}" for part in range(12))
    show_table(Table("", ("run", "task"), [(run, "a task")], is_copied=True), width=40)
    rows = capsys.readouterr().out.splitlines()[1:]
    assert "".join(row.removesuffix("a task").strip() for row in rows) == run


def test_each_reducer_and_all_have_their_records_queue_forwards_and_keys_of_a_thousand_the_busiest_and_idlest() -> None:
    rows = (
        r"\n +1 +10,526,316 +43\.9% +█+ +121,711 +49,380 +50,001\n(.*\n)+ +all +24,000,000 +121,711 +49,380 +200,006\n"
    )
    assert re.search(rows, shown(samples.report()))
    text = shown(samples.report(1_000, samples=()))
    assert re.search(r"\n +1 +\d", text)
    assert re.search(r"\n +\.\.\. +[0-9,]+ +968 more\n", text)
    assert len(re.findall(r"^ +\d+ +[0-9,]+ +[0-9.]+%", text, re.MULTILINE)) == 32


DEATH = RecoveryReport(0, 12.5, "reducer 1", "two", "it was killed", 1_234, 2.5, begun=1.25, restored=2.25)
DETAILS: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "a usual run": (
        {},
        (
            "skew S 0.034 ▍ this run; 0 is even, 1 is all on one task S, static 0.412 ████▏ the same ring",
            "S, Spark 0.398 ████ hash partitioning of the same records",
            "redistributions 4 decisions: 150 below threshold, 5 rounds used up, 4 applied",
            "records 24,000,000 processed; 20,000,000 rows read, 24,000,000 mapped, 24,000,000 emitted",
            "forwards 49,380 0.0021 per record",
            "throughput 4,800,000/s records mapped",
            "latency p99 1.12 s p95 0.41 s, p50 31.2 ms, max 2.50 s, mean 0.10 s",
            "15.3 s startup 2.31 s, load 1.08 s, stream 5.00 s, merge 0.42 s, reference 6.20 s",
            "first record after 3.60 s",
            "reducer: hot keys key share records between the 7.8% 1,877,450 1,876,550 to 1,878,550",
            "result 200,000 rows out/wordcount/result, 4 files",
            "report out/report/report.html",
        ),
    ),
    "a skew that was not computed": ({"skew": SkewReport(0.034, 0.412)}, ["Spark not asked for"]),
    "a planned table": ({"first_table": "2 hot keys split"}, [" first table 2 hot keys split redistributions"]),
    "many redistributions": (
        {"rounds": 30},
        (
            "reducer: 30 redistributions at (s) task reason 0.13 1 queue of 131,072 exceeds 1.2 times",
            "and 18 more, in the report",
        ),
    ),
    "partial results": (
        {"aggregation": AggregationStats(epochs=12, seconds=0.834, states=1_234)},
        ["aggregation published 12 times 1,234 states handed over, 0.83 s of user code"],
    ),
    "a result in memory": ({"output": OutputReport(None, 1)}, ["result 1 row in memory"]),
    "deaths": (
        {"recoveries": (DEATH, replace(DEATH, node="", seconds=None))},
        ["after died node rows again begun after restored flowed 12.5 s reducer 1 two 1,234 1.25 s 2.25 s 2.50 s"],
    ),
    "a failed job": (
        {"status": "failed", "error": "no", "output": OutputReport(rows=7, unpublished="/data/out")},
        ["result nothing was published /data/out is as it was"],
    ),
    "another grouping": (
        {"grouping": GroupingReport("consistent", 1.234, 12)},
        ["grouping consistent a key on 1.23 tasks on average, 12 parts of the keys moved"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), DETAILS.values(), ids=DETAILS)
def test_the_details_say_what_a_run_did_and_nothing_else(changes: dict[str, Any], expected: Sequence[str]) -> None:
    text = words(shown(samples.report(**changes)))
    assert [each for each in expected if each not in text] == []
    for name in {"grouping", "first_table", "aggregation"} - {*changes}:
        assert name.replace("_", " ") not in text
    assert text.count("gives up 32 of its 64 tokens") <= 12


def test_an_empty_job_has_a_table_too_and_no_line_breaks_between_a_number_and_its_unit() -> None:
    assert "0  processed; 0 rows read, 0 mapped, 0 emitted\n" in shown(samples.empty_report())
    broken = r"[0-9]\n +(s|rows?|mapped|emitted|processed|forwards?|per|record)\b"
    for width in range(80, 140):
        assert not re.search(broken, shown(samples.report(), width))


def test_forwards_are_no_share_of_the_records() -> None:
    made = samples.report()
    for forwarded, words in (
        (0, "0"),
        (1, "1  under 0.001 per record"),
        (49_380, "49,380  0.0021 per record"),
        (120_504_000, "120,504,000  5.02 per record"),
    ):
        text = shown(replace(made, records=replace(made.records, forwarded=forwarded)), 200)
        assert re.search(rf"^forwards +{re.escape(words)}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("keys", "reducers", "is_hot"),
    [(4, 4, False), (10, 4, False), (1_000, 4, False), (1_000, 64, False), (1, 1, False), (3, 4, True)],
)
def test_equally_frequent_keys_are_hot_if_they_are_fewer_than_reducers(keys: int, reducers: int, is_hot: bool) -> None:
    share = 1 / keys
    hot = tuple(HotKey(f"k{key}", 1000, share, 1000, 1000) for key in range(min(keys, 10)))
    distribution = KeyDistribution(keys, (1, keys), (share, 1.0))
    text = shown(samples.report(reducers, hot_keys=hot, key_distribution=distribution))
    assert ("hot keys\n" in text) == ("hot keys" in text) == is_hot


def test_a_hot_key_is_named_with_bounds_unless_it_was_counted_and_those_that_make_nothing_uneven_are_not() -> None:
    text = shown(samples.report())
    assert re.search(r"^reducer: hot keys\nkey .*\nthe .*\nof .*\nand ", text, re.MULTILINE)
    assert "données" not in text
    hot = replace(samples.hot_keys()[0], lower=7, upper=7)
    assert re.search(r"the +7\.8% +1,877,450 +exact\n", shown(samples.report(hot_keys=(hot,))))


@pytest.mark.parametrize("key", samples.NASTY_KEYS, ids=range(len(samples.NASTY_KEYS)))
@pytest.mark.parametrize("width", [80, 120])
def test_a_nasty_key_neither_breaks_lines_nor_acts_on_the_terminal(key: object, width: int) -> None:
    report = samples.report(
        hot_keys=samples.hot_keys((key, "next")),
        reference=ReferenceReport(True, False, 1, (f"key {key}: missing",)),
        redistributions=(samples.decision(reason=f"hot key {key}"),),
        error=f"raised on {key}",
        status="mismatch",
    )
    lines = shown(report, width).split("\n")
    assert all(line.isprintable() for line in lines)
    row = lines[lines.index("reducer: hot keys") + 2]
    assert row.endswith("7.8%  1,877,450  1,876,550 to 1,878,550")
    assert cell_len(row) <= width


def test_the_first_differing_keys_follow_the_verdict() -> None:
    reference = ReferenceReport(True, False, 10, ("key a: 5, reference 6", *(f"key {n}: missing" for n in range(6))))
    made = samples.report(status="mismatch", reference=reference)
    text = shown(made, verbose=False)
    assert text.startswith("wordcount: mismatch in 15.3 s")
    assert "\nreference: MISMATCH\n  key a: 5, reference 6\n  key 0: missing\n" in text
    assert "\n  key 3: missing\n  and 2 more, with --verbose or in the report\nrate  " in text
    assert "\n  key 5: missing\nrate  " in shown(made)


def test_a_failed_job_shows_its_error_no_result_and_how_far_it_came() -> None:
    error = 'Traceback:\n  File "jobs/words.py", line 3\nExecutorError: key "a": \x1b[31moops'
    text = shown(samples.empty_report(status="failed", error=error), verbose=False)
    assert text.startswith("empty: failed in 0.00 s")
    assert "result" not in text
    assert "rate" not in text
    assert text.endswith(
        "\nreference: not checked\n"
        "report     out/report/report.html\n\n"
        'Traceback:\n  File "jobs/words.py", line 3\nExecutorError: key "a": \\x1b[31moops\n'
    )
    made = samples.report(status="failed", error="an actor died", reference=ReferenceReport())
    text = shown(made)
    assert "20,000,000 rows read" in text
    assert "\nresult" not in text and "as last reported" not in text
    early = replace(made, records=RecordCounts(read=38, mapped=38, emitted=38, processed=50))
    assert "records 50 processed; as last reported: 38 rows read, 38 mapped, 38 emitted" in words(shown(early))
    early = samples.report(status="failed", error="no", skew=SkewReport(dpa=0.5))
    assert "static" not in shown(early) + repr(Result(early)), "its stages had not finished"


def test_a_stream_that_is_not_utf_8_gets_bars_of_hashes_and_escapes() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    show(samples.report(hot_keys=samples.hot_keys(("東京",))), stream, width=80, verbose=True)
    text = stream.buffer.getvalue().decode("ascii")
    assert all(each in text for each in ("########", "\\u6771\\u4eac", "reference: match\n"))


def first_rows(result: pa.Table, width: int = 80, key: str = "output.path", verbose: bool = False) -> list[str]:
    """The lines of the summary that show the result."""
    stream, report = io.StringIO(), samples.report(output=OutputReport(None, result.num_rows))
    show(report, stream, result=(key, result), width=width, verbose=verbose)
    return stream.getvalue().partition("\nresult     ")[2].partition("\nreference: match\n")[0].splitlines()


def test_the_first_rows_of_a_result_that_is_kept_nowhere_are_shown_and_a_small_one_whole() -> None:
    rows = pa.table({"word": [f"w{row}" for row in range(200)], "count": range(200)})
    found = first_rows(rows)
    assert found[0] == "first 1 of 200 rows; set output.path to keep them"
    assert [line.split() for line in found[1:]] == [["word", "count"], ["w0", "0"]]
    assert first_rows(rows, verbose=True)[0].startswith("first 10 of 200 rows")
    for number in (1, 10):
        found = first_rows(pa.table({"word": ["a"] * number, "value": [None] * number}), key="stages.top.write.path")
        assert found[1:] == ["word  value", *["a     null"] * number]
        assert found[0].startswith(f"first {number} of {number} row")
        assert found[0].endswith("set stages.top.write.path to keep them")
    stream = io.StringIO()
    show(samples.report(), stream, result=("output.path", pa.table({"key": pa.nulls(0)})), width=80)
    assert "first" not in stream.getvalue(), "an empty result has no rows"


@pytest.mark.parametrize(("width", "hidden"), [(80, 17), (120, 15)])
def test_wide_results_and_nasty_values_are_cut(width: int, hidden: int) -> None:
    nasty = {"key": [str(key) for key in samples.NASTY_KEYS if key != "\ud800 alone"]}
    wide = {f"a long name of column {number}": [[number] * 1_000] * len(nasty["key"]) for number in range(20)}
    found = first_rows(pa.table({**nasty, **wide}), width, verbose=True)
    title = f"first 10 of {len(nasty['key'])} rows, without {hidden} more columns; set output.path to keep them"
    assert words(" ".join(found)).startswith(title)
    assert all(cell_len(line) <= width and line.isprintable() for line in found)
    assert len(found) <= 13


FULL = {
    "errors": (ErrorCount("clicks", "ValueError", True, 3, "clicks.map failed on record 7"),),
    "recoveries": (RecoveryReport(0, 12.5, "reducer 1", "two", "it was killed", 1_234, 2.5),) * 2,
    "checkpoints": CheckpointStats(written=7, failed=2),
    "dead_letters": "out/letters",
}
LATE = "with the plain ring: the sample took longer than 0.3 s"
SKEWED = samples.report(rounds=0, first_table=LATE, skew=SkewReport(0.48, 0.48, 0.4), errors=FULL["errors"])


@pytest.mark.parametrize(
    "made", [samples.report(**FULL), samples.graph_report(), SKEWED], ids=["two stages", "graph", "skewed"]
)
def test_a_summary_says_what_came_out_whether_it_is_right_and_how_it_went_in_10_lines(made: Report) -> None:
    lines = shown(replace(made, epochs=replace(made.epochs, number=9, rows=100)), verbose=False).splitlines()
    assert len(lines) <= 10 + (made is SKEWED), lines
    assert max(map(cell_len, lines)) <= 80 and not any("…" in line for line in lines)
    said = [line.split(" ")[0] for line in lines if line[0] not in " ("]
    assert [word for word in said if word != "left"][1:8] == [
        *("result", "reference:", "rate", "skew", "balancing", "latency", "report")
    ]


def test_long_hot_keys_and_what_is_idle_take_few_lines_of_a_summary() -> None:
    made = samples.report()
    keys = tuple(replace(hot, key=(hot.key, *["2026-11-28 22:14:20+00:00"] * 2)) for hot in made.main.hot_keys)
    idle = replace(made.bottleneck, kind="none", stage=None, reason="no bottleneck: all are idle; the busiest is a")
    made = replace(made, stages=(made.stages[0], replace(made.main, hot_keys=keys)), bottleneck=idle)
    text = words(shown(made, verbose=False))
    assert len(made.main.hot) > 1 and text.count("22:14:20") == 2, "of one key"
    assert text.endswith("no bottleneck: all are idle")
    assert "the busiest is a" in words(shown(made))
    made = replace(made, seconds=replace(made.seconds, stream=0.2))
    assert "bottleneck" not in words(shown(made, verbose=False)) + repr(Result(made)), "it was too short to tell"
    assert "the busiest is a" in words(shown(made))


def test_a_summary_says_what_a_run_survived_and_left_out_and_why_nothing_was_balanced() -> None:
    text = words(shown(samples.report(**FULL), verbose=False))
    assert text.startswith("wordcount: ok in 15.3 s, after 2 restarts, 2 checkpoints not written result")
    assert "4 files left out 3 3 dead letters in out/letters reference: match" in text
    assert "skew 0.034 (0 is even); 0.412 without balancing, 0.398 with Spark's hash" in text
    hot = "hot keys: the (7.8%), of (3.9%), and (2.6%)"
    assert f"balancing 4 redistributions {hot} latency p99 1.12 s median 31.2 ms" in text
    assert text.endswith("of the time") and "average" not in text
    still = words(shown(samples.report(rounds=0), verbose=False))
    assert "balancing no redistribution: 150 below threshold, 5 rounds used up" in still
    assert f"balancing no redistribution; started {LATE} hot keys: the" in words(shown(SKEWED, verbose=False))
    even = samples.report(first_table=LATE)
    assert LATE not in shown(even, verbose=False) and f"first table {LATE}" in words(shown(even))
    outputs = tuple(OutputReport(f"out/{number}", number, ()) for number in range(4))
    lines = shown(samples.report(output=outputs[0], more_outputs=outputs[1:]), verbose=False).splitlines()
    assert lines[1:3] == ["result     0 rows  out/0", "           and 3 more results"]


def test_of_a_graph_each_stage_has_a_line_with_more_columns_on_a_wide_terminal() -> None:
    made = samples.graph_report()
    text = shown(made)
    assert re.search(r"^stage +tasks +in +out +busy +blocked +S +MiB +0 s +5.00 s\n", text)
    assert re.search(r"\ntrades +3 +5.00M +15.0M +20% +62% +182  █{9}···\n", text)
    assert re.search(r"\npriced +3 +1.96M +385k +67% +1% +0.000 +342  ··█{9}·\n", text)
    assert "\naudited trades of… " in text
    meaning = "S: skew of the records, 0 is even, 1 is all on one task; MiB: a task at most;\nbar: when it processed"
    assert f"\n{meaning}\n" in text
    text = shown(made, 120)
    assert re.search(r"^stage +tasks +in +out +busy +blocked +S +MiB +0 s +5.00 s +waiting +queue +p99\n", text)
    assert re.search(r"\npriced +3 +1.96M +385k +67% +1% +0.000 +342  ··█{9}· +131k +1.12 s\n", text)
    changed = replace(made["priced"], changes=(replace(samples.grown(), started=(3,), stopped=(0, 1)),))
    stages = tuple(changed if stage.name == "priced" else stage for stage in made.stages)
    assert re.search(r"\npriced +2→1 ", shown(replace(made, stages=stages))), "its tasks at both ends"


def test_the_details_of_a_graph_are_those_of_each_operator_stage() -> None:
    text = words(shown(samples.graph_report()))
    assert re.search(
        r"priced: 3 tasks .* priced: 2 redistributions .* priced: hot keys .* the 7.8% .* latency p99", text
    )
    assert re.search(r"result 20 rows out/last reference match .* records 18,159,894 processed; 6,249,996 rows", text)
    assert "details: --verbose" not in text


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("edges", [samples.CHAIN, samples.DIAMOND], ids=["chain", "diamond"])
def test_the_table_of_a_graph_fits_its_width(edges: tuple[tuple[str, str], ...], width: int, verbose: bool) -> None:
    lines = shown(samples.graph_report(edges, edges[-1][1]), width, verbose).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) < 30 * len(samples.stages_of(edges))


def test_the_text_of_a_result_is_the_short_one() -> None:
    text = repr(Result(samples.graph_report()))
    assert re.search(r"\n  priced +3 tasks, 1.96M in, 385k out, 67% busy, 1% blocked, 0.000 S\n", text)
    assert re.search(r"\n  balancing +2 redistributions hot keys: the \(7.8%\), of \(3.9%\)\n", text)
    assert len(text.splitlines()) <= 1 + 10 + 7
    report = samples.report()
    alone = replace(report.main, tasks=report.main.tasks[:1])
    assert "reducer    1 task, " in repr(Result(replace(report, stages=(report.stages[0], alone))))


def test_a_job_with_one_source_and_one_reducer_says_what_limits_it_when_each_processed_and_its_memory() -> None:
    made = samples.report()
    tasks = tuple(replace(task, peak_memory=300 * 2**20) for task in made.main.tasks)
    text = shown(replace(made, stages=(made.stages[0], replace(made.main, tasks=tasks))))
    assert "reducer limits the run: its busiest task, 3, is busy 68% of the time, the average 65%" in words(text)
    assert re.search(r"\nmapper +2 +20.0M +24.0M +55% +31% +█{11}·\nreducer +4 .* 0.034 +300  █{12}\n", text)
    for began, ended, expected in (
        (0.0, 5.0, "██████████"),
        (0.0, 0.01, "█·········"),
        (2.5, 5.0, "·····█████"),
        (4.99, 9.0, "·········█"),
        (6.0, 7.0, "·········█"),
    ):
        assert span(began / 5, ended / 5, 10) == expected
        assert span(began / 5, ended / 5, 10, ascii_only=True) == expected.replace("█", "#").replace("·", ".")


ROWS = 1_000_000
PHASES = ("waiting", "sources", "queues", "tables", "results", "snapshots", "commit")
OF_ROWS = dict(zip(PHASES, (0.1, 0.02, 0.08, 0.001, 0.05, 0.0, 0.06), strict=True))
EPOCHS = EpochStats(
    *(10, 2.5, 0.9, EpochWait("reducer 1", "published its share", 0.4), ROWS),
    tuple(PhaseStats(EpochPhase[name.upper()], 10, 2.0, 0.5, part * ROWS) for name, part in OF_ROWS.items()),
)


def epoch_table(text: str) -> list[str]:
    [found] = re.findall(r"^until readers see .*?\n\n", text, re.MULTILINE | re.DOTALL)
    return found.splitlines()


def test_one_line_says_when_a_row_is_visible_and_what_it_waited_for_and_one_the_time_of_a_record() -> None:
    spent = RecordTimes(0.02, 0.0001, 0.05, 0.035)
    text = " ".join(shown(samples.report(epochs=EPOCHS, record_times=spent), 200).split())
    assert "epochs 10 ended sources waited 0.25 s each, 0.90 s at most" in text
    waited = "0.10 s waiting, 20 ms sources, 80 ms queues, 50 ms results, 60 ms commit"
    assert f"visible 0.31 s after a row was read {waited} time" in text
    waited = "20 ms until it was made, 0.1 ms for credit, 50 ms on its way and in the queue, 35 ms in its quantum"
    assert f"record 0.10 s in the mean {waited}" in text
    assert "visible" not in shown(samples.report(epochs=EpochStats(3, 0.1, 0.1)))
    brief = shown(samples.report(epochs=EPOCHS), verbose=False)
    assert "\nlatency    p99 1.12 s  median 31.2 ms; readers see a row 0.31 s after it is read\n" in brief


def test_a_table_and_the_view_have_each_phase_of_a_row_and_of_an_epoch() -> None:
    report = samples.report(epochs=EPOCHS)
    found = epoch_table(shown(report))
    assert [line.split()[0] for line in found[2:-2]] == [*PHASES]
    assert re.fullmatch(r"queues  +run empty  +80 ms +0\.20 s +0\.50 s", found[4])
    assert re.fullmatch(r"snapshots  +of states are taken  +0\.20 s +0\.50 s", found[7]), "rows did not wait for them"
    assert found[-2].split() == ["visible", "0.31", "s"]
    assert "until readers see" not in shown(report, verbose=False)
    epochs = view_of_report(report)["epochs"]
    assert tuple(epochs["phases"]) == PHASES
    assert epochs["phases"]["queues"].items() >= {"row": 0.08, "mean": 0.2, "longest": 0.5, "seconds": 2.0}.items()
    assert epochs["visible_after"] == pytest.approx(0.311)


def test_where_no_reader_has_seen_a_row_the_phases_are_of_epochs_alone() -> None:
    checkpoints = EpochStats(2, 1.0, 0.6, phases=(PhaseStats(EpochPhase.SNAPSHOTS, 2, 1.0, 0.6),))
    text = shown(samples.report(epochs=checkpoints))
    assert re.search(r"^the ends of epochs\n.*\nsnapshots +of states are taken +0\.50 s +0\.60 s$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_fits_with_the_longest_words(width: int) -> None:
    phases = tuple(PhaseStats(phase, 1, 7_200.0, 7_200.0, 7_200.0) for phase in EpochPhase)
    found = epoch_table(shown(samples.report(epochs=EpochStats(1, 1.0, 1.0, None, 1, phases)), width))
    assert max(map(len, found)) <= width
    assert all(phase.words in " ".join(found) for phase in EpochPhase)
