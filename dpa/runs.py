"""`dpa runs`, or `python -m dpa.runs`: earlier runs, and two of them beside each other (docs/runs.md)."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpa import report as reports
from dpa._util.streams import exiting, printing
from dpa.door.view import view_of_tables
from dpa.report import EarlierRun, ReportError, earlier_runs, show_table
from dpa.result.text import Fact, Table, one_line, seconds, short
from dpa.sinks.epoch_log import epochs

app = typer.Typer(add_completion=False)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_RUN = "A report or its directory, a number of `dpa runs list`, or a job's name: its newest run."
_EPOCHS = 20  # the newest epochs of a log that are shown


@app.command("list")
def show_all(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Where reports are; without it, your last runs.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """List runs, the newest first."""
    with exiting(), printing("the list"):
        runs = earlier_runs(directory)
        about = [_about(run) for run in runs]
        if as_json:
            print(json.dumps(about, indent=2))
        elif not runs:
            print("no run is kept" if directory is None else f"{directory} has no report of a run")
        else:
            where, rows = "" if directory is None else "directory", []
            for number, (run, found) in enumerate(zip(runs, about, strict=True), 1):
                name, status = one_line(run.report.name, 40), one_line(run.report.status)
                named = [str(number), f"{run.ended:%Y-%m-%d %H:%M}", name, status]
                figures = (short(found["rows"]), short(found["records_per_second"]), _shown(found["skew"]))
                time = seconds(found["total_seconds"])
                rows.append([*named, *figures, time, str(run.path.parent) if where else ""])
            head = ("#", "ended", "job", "status", "#rows", "#records/s", "#skew", "#time", where)
            show_table(Table("", head, rows))


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help=f"{_RUN} Or an epoch log.")],
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all details.")] = False,
    as_json: _Json = False,
) -> None:
    """Show the end of a run again, or the newest epochs of a log."""
    with exiting(), printing("the run"):
        if "://" in run or (Path(run).is_dir() and not (Path(run) / "report.json").exists()):
            found = epochs(run)
            newest = found.slice(max(0, found.num_rows - _EPOCHS))
            if as_json:
                print(json.dumps(newest.to_pylist(), default=str))
            else:
                reports.show_rows(newest, f"last {newest.num_rows} of {found.num_rows:,} epochs", _EPOCHS)
        elif as_json:
            print(reports.to_json(_found(run).report))
        else:
            reports.show(_found(run).report, verbose=verbose)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=_RUN)] = "1",
    second: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Another run; without it, A is shown beside the run before it.")
    ] = None,
    as_json: _Json = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write it there, as a page.")] = None,
) -> None:
    """Show two runs beside each other: rate, skew, latency, cost, decisions, and what is configured differently."""
    with exiting(), printing("the comparison"):
        later = _found(second or first)
        before = _found(first) if second else _before(later)
        left, right = _figures(before), _figures(later)
        figures = {name: [left.get(name), right.get(name)] for name in {**left, **right}}
        differing = dict(_differences(before.report.config, later.report.config))
        differing |= _differences(before.report.versions, later.report.versions, "versions")
        facts = [
            Fact(
                letter,
                one_line(run.report.name),
                f"{one_line(run.report.status)}, {run.ended:%Y-%m-%d %H:%M}, {run.path}",
            )
            for letter, run in (("A", before), ("B", later))
        ]
        rows = [
            (one_line(name.replace("_", " ")), *map(_shown, both), _change(*both)) for name, both in figures.items()
        ]
        compared = Table("", ("", "#A", "#B", "#change"), [row for row in rows if row[1] or row[2]])
        changed = [(one_line(key), " → ".join(map(json.dumps, both))) for key, both in differing.items()]
        differ = Table("\nconfigured differently", ("key", "A → B"), changed)
        if html is not None:
            tables = {"Figures": compared, "Configured differently": differ}
            reports.write_page(html, view_of_tables(f"{facts[0].value} and {facts[1].value}", facts, tables))
        if as_json:
            found = {"runs": [_about(before), _about(later)], "figures": figures, "differing": differing}
            print(json.dumps(found, indent=2))
            return
        for fact in facts:
            print(f"{fact.name}: {fact.value}, {fact.remark}")
        show_table(compared)
        show_table(differ)


def _found(run: str) -> EarlierRun:
    path = Path(run)
    if path.exists():
        return EarlierRun.read(path / "report.json" if path.is_dir() else path)
    for number, found in enumerate(earlier_runs(), 1):
        if run in (str(number), found.report.name):
            return found
    raise ReportError(f"{run} is no run: name a report.json, its directory, a job, or a number of `dpa runs list`")


def _before(run: EarlierRun) -> EarlierRun:
    for found in earlier_runs():
        if found.report.name == run.report.name and found.ended < run.ended:
            return found
    raise ReportError(f"no earlier run of {run.report.name} is kept: name both runs")


def _about(run: EarlierRun) -> dict[str, Any]:
    figures = _figures(run)
    known = {name: figures[name] for name in ("status", "rows", "records_per_second", "total_seconds")}
    skew = max((stage.skew.dpa for stage in run.report.operators if stage.skew is not None), default=None)
    return {"path": str(run.path), "ended": run.ended.isoformat(), "name": run.report.name, **known, "skew": skew}


def _figures(run: EarlierRun) -> dict[str, Any]:
    """What runs are compared by; units are in the names. The cost of a run is the processor time of its tasks."""
    report = run.report
    tasks = [task for stage in report.stages for task in stage.tasks]
    cost, latency = sum(task.cpu_seconds for task in tasks), report.main.latency
    stages = [stage for stage in report.operators if stage.skew is not None]
    decided: Counter[str] = sum((Counter(stage.decision_counts) for stage in report.operators), Counter())
    return {
        "status": report.status,
        "rows": report.records.read,
        "records_per_second": report.records_per_second,
        "stream_seconds": report.seconds.stream,
        "total_seconds": report.seconds.total,
        **{f"skew_{stage.name}": stage.skew and stage.skew.dpa for stage in stages},
        **{f"skew_{stage.name}_without_balancing": stage.static_skew for stage in stages},
        "latency_p99_seconds": latency and latency.p99,
        "latency_median_seconds": latency and latency.p50,
        "processor_seconds": cost,
        "processor_seconds_per_million_rows": 1e6 * cost / report.records.read if report.records.read else None,
        "peak_memory_mib": sum(task.peak_memory for task in tasks) / 2**20,
        "bottleneck": report.bottleneck.stage,
        **{f"decisions_{outcome}": number for outcome, number in sorted(decided.items())},
        "restarts": len(report.recoveries),
        "records_left_out": sum(found.records for found in report.errors),
    }


def _differences(left: Any, right: Any, key: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The keys whose values differ, each with both values; null for one that is absent."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in {**left, **right}:
            yield from _differences(left.get(name), right.get(name), f"{key}.{name}".lstrip("."))
    elif left != right:
        yield key, [left, right]


def _shown(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return one_line(value or "")
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1_000 else f"{value:.3g}"


def _change(left: Any, right: Any) -> str:
    is_number = isinstance(left, int | float) and isinstance(right, int | float)
    return f"{right / left - 1:+.1%}" if is_number and left and left != right else ""


if __name__ == "__main__":
    app()
