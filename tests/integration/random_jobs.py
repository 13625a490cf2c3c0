"""A job drawn from a seed, and what must come of it, worked out in plain Python.

The draw covers inputs, keys, executors, groupings, strategies, partial results, what lies at the output already,
and ways to go wrong. `RandomJob.check` looks at what a run of it has left.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import random_executors
import yaml

from dpa import results
from dpa.balance.options import BY_STRATEGY
from dpa.result import Report
from dpa.routing.groupings.options import KINDS, RING

HERE = Path(__file__).parent
FATAL = random_executors.FATAL

Value = int | str | None
Rows = list[tuple[Any, Value]]

GROUPINGS = [kind for kind in KINDS if kind != RING]

DAY, NOON = date(2026, 1, 31), datetime(2026, 1, 31, 12, 0, 0, 5)

KEYS: dict[str, tuple[Callable[[int], Any], pa.DataType]] = {
    "text": (lambda rank: f"key {rank}" if rank else "", pa.string()),
    "integers": (lambda rank: (rank - 3) * 10**rank if rank < 18 else rank, pa.int64()),
    "large integers": (lambda rank: 2**63 + rank if rank % 2 else rank, pa.uint64()),
    "bytes": (lambda rank: b"\xff" * rank, pa.binary()),
    "booleans": (lambda rank: rank < 2, pa.bool_()),
    "days": (lambda rank: DAY - timedelta(rank * 999), pa.date32()),
    "times": (lambda rank: NOON + timedelta(microseconds=rank), pa.timestamp("us")),
    "moments": (lambda rank: (NOON + timedelta(hours=rank)).astimezone(timezone.utc), pa.timestamp("us", "UTC")),
    "decimals": (lambda rank: Decimal(rank - 3).scaleb(-(rank % 4)), pa.decimal128(20, 4)),
}
"""Kinds of keys or components of them: that of each rank, and the type in a file."""


@dataclass(frozen=True)
class Fold:
    """A reducer and what it must come to.

    Attributes:
        use: what the job file names.
        of: the result of a key's values, by column.
        args: of the reducer, where values are in the column that is given.
        nulls: whether values may be null.
        merges: whether it can merge.
        texts: whether values may be texts.
    """

    use: str
    of: Callable[[list[Any]], dict[str, Any]]
    args: Callable[[str], dict[str, Any]] = lambda column: {}
    nulls: bool = False
    merges: bool = True
    texts: bool = False


def _aggregate(name: str, fold: Callable[[list[Any]], Any], *, texts: bool = False) -> Fold:
    """A ready-made reducer of one column, in which nulls are no values."""

    def of(values: list[Any]) -> dict[str, Any]:
        known = [value for value in values if value is not None]
        return {"<column>": fold(known) if known else None}

    return Fold(name, of, lambda column: {"column": column}, nulls=True, texts=texts)


FOLDS = (
    Fold("count", lambda values: {"count": len(values)}, nulls=True, texts=True),
    _aggregate("sum", sum),
    _aggregate("min", min, texts=True),
    _aggregate("max", max, texts=True),
    _aggregate("mean", lambda values: sum(values) / len(values)),
    Fold(
        "top_k",
        lambda values: {"top": sorted((value for value in values if value is not None), reverse=True)[:3]},
        lambda column: {"k": 3},
        nulls=True,
        texts=True,
    ),
    Fold("distinct", lambda values: {"distinct": len(set(values) - {None})}, nulls=True, texts=True),
    Fold("random_executors:largest", lambda values: {"value": max(values)}, texts=True),
    Fold("random_executors:Extent", lambda values: {"least": min(values), "greatest": max(values)}, texts=True),
    Fold("random_executors:Draining", lambda values: {"value": sum(values)}),
    Fold("random_executors:Number", lambda values: {"value": len(values)}, nulls=True, merges=False, texts=True),
)
WITH_COLUMNS = Fold("random_executors:SumAndCount", lambda values: {"total": sum(values), "number": len(values)})
"""Needs the column `v`, which values of a per-record mapper are not in."""

MAPPERS: dict[str | None, Callable[[Rows], Rows]] = {
    None: lambda rows: rows,
    "random_executors:pairs": lambda rows: rows,
    "random_executors:none_or_two": lambda rows: [row for row in rows if row[1] % 2 == 0 for _ in range(2)],
    "random_executors:Scaled": lambda rows: [(key, value * 3) for key, value in rows],
    "random_executors:batches": lambda rows: [row for row in rows if row[1] >= 0],
}
BATCH_MAPPERS = (None, "random_executors:batches")
TAKES_ALL = (None, "random_executors:pairs")
"""Bear nulls and texts as values."""

FAILURES = {
    "mapper": ("random_executors:RaisesInMap", None, "cannot map this"),
    "reduce": (None, "random_executors:raises_in_reduce", "cannot reduce this"),
    "exit": (None, "random_executors:exits_in_reduce", "SystemExit: 0"),
    "death": (None, "random_executors:dies_in_reduce", r"(mapper|reducer) \d died"),
    "finish": (None, "random_executors:RaisesInFinish", "cannot finish this"),
    "types": (None, "random_executors:MixesTypes", "column 'value'"),
}


REFERENCES = {"count": "count(*)", "sum": "sum(v)", "min": "min(v)", "max": "max(v)"}
"""Reducers that SQL has too."""


@dataclass
class RandomJob:
    """A job and what must come of it.

    Attributes:
        document: the job file.
        expected: the result's row of each key.
        rows: input rows.
        mapped: records that the mapper makes.
        status: `ok`, `failed`, `mismatch`, or `refused` before anything starts.
        error: a pattern of the message, where it fails or is refused.
        before: the files at the output before the run.
    """

    seed: int
    document: dict[str, Any] = field(default_factory=dict)
    expected: dict[Any, dict[str, Any]] = field(default_factory=dict)
    rows: int = 0
    mapped: int = 0
    status: str = "ok"
    error: str | None = None
    before: dict[str, bytes] = field(default_factory=dict)

    def write(self, place: Path) -> Path:
        """Write the job file; returns where it is."""
        file = place / "job.yaml"
        file.write_text(yaml.safe_dump(self.document, sort_keys=False), encoding="utf-8")
        return file

    def check(self, place: Path, report: Report | None, table: pa.Table | None) -> None:
        """Hold a run in the directory `place` against what is expected.

        Args:
            report: None if the job was refused.
            table: the result; None if there is none.
        """
        assert (report.status if report else "refused") == self.status, report and report.error
        output = place / "out"
        if self.status in ("failed", "refused"):
            assert _files(output) == self.before, "what was at the output is not as it was"
        else:
            assert report is not None and table is not None
            self._check_result(table)
            counts = report.records
            assert (counts.read, counts.mapped, counts.processed) == (self.rows, self.mapped, counts.emitted)
            assert report.main.output.rows == len(self.expected)
            outputs = self.document.get("output", [{}])
            if outputs[0]:
                parts = sorted(output.glob("*.parquet"))
                assert [part.name for part in parts] == list(report.main.output.files)
                assert {path.name for path in output.iterdir()} == {"_job.yaml", *report.main.output.files}
                assert len({pq.read_schema(part) for part in parts}) == 1
                self._check_result(pq.read_table(output))
            if len(outputs) > 1 and report.main.aggregation is not None and report.main.aggregation.epochs:
                rows = results(place / "so-far").table.to_pylist()
                assert {self._popped_key(row) for row in rows} <= set(self.expected)
        left = {path.name for path in place.iterdir()} - {"job.yaml", "input", "out", "so-far", "report"}
        assert not left, f"left behind: {left}"

    def _check_result(self, table: pa.Table) -> None:
        found: dict[Any, dict[str, Any]] = {}
        for row in table.to_pylist():
            key = self._popped_key(row)
            assert key not in found, f"key {key!r} comes twice"
            found[key] = row
        assert found.keys() == self.expected.keys()
        assert found == self.expected

    def _popped_key(self, row: dict[str, Any]) -> Any:
        """The key of a row of the result, whose other columns are left."""
        names = self.document["key"]
        return row.pop(names) if isinstance(names, str) else tuple(row.pop(name) for name in names)


def random_job(seed: int, place: Path) -> RandomJob:
    """Draw a job whose files, the input among them, are written to the directory `place`."""
    draw = random.Random(seed)
    job = RandomJob(seed)
    failure = draw.choice(list(FAILURES)) if draw.random() < 0.25 else None
    mapper, fold = _executors(draw, failure)
    kinds = draw.sample(list(KEYS), draw.choice([1, 1, 2]))
    texts = fold.texts and failure is None and mapper in TAKES_ALL and draw.random() < 0.3
    rows = _rows(draw, fold, mapper, failure, kinds, texts)
    mapped = MAPPERS.get(mapper, lambda rows: rows)(rows)
    job.rows, job.mapped = len(rows), len(mapped)
    column = "v" if mapper in BATCH_MAPPERS else "value"
    job.expected = _expected(mapped, fold, column)
    job.document = {
        "name": f"random-{seed}",
        "python_path": [str(HERE)],
        "input": _input(draw, rows, place, kinds, texts),
        "key": "k" if len(kinds) == 1 else ["k", "l"],
        "reducer": {"use": fold.use, "args": fold.args(column)},
        "parallelism": {"mappers": draw.randint(1, 2), "reducers": draw.randint(1, 3)},
        "recovery": {"attempts": 0},  # each attempt would die as well
        "limits": {"batch_records": draw.choice([10, 100, 1_000]), "in_flight_records": draw.choice([1_000, 5_000])},
    }
    if mapper is not None:
        args = {"factor": 3} if mapper.endswith("Scaled") else {}
        job.document["mapper"] = {"use": mapper, "args": args}
    _draw_balance(draw, job, fold)
    if draw.random() < 0.5:
        _draw_output(draw, job, place / "out")
    if failure is not None and job.status == "ok":
        job.status, job.error = "failed", FAILURES[failure][2]
    if failure is None and mapper is None and fold.use in REFERENCES and draw.random() < 0.5:
        _draw_reference(draw, job, REFERENCES[fold.use], texts)
    return job


def _executors(draw: random.Random, failure: str | None) -> tuple[str | None, Fold]:
    if failure is not None:
        mapper, reducer, _ = FAILURES[failure]
        return mapper, Fold(reducer or "random_executors:largest", lambda values: {"value": max(values)})
    if draw.random() < 0.3:
        return None, draw.choice([fold for fold in FOLDS if fold.use in REFERENCES])
    mapper = draw.choice(list(MAPPERS))
    folds = FOLDS if mapper not in BATCH_MAPPERS else (*FOLDS, WITH_COLUMNS)
    return mapper, draw.choice(folds)


def _rows(
    draw: random.Random, fold: Fold, mapper: str | None, failure: str | None, kinds: list[str], texts: bool
) -> Rows:
    """Rows of an input: few or many, skewed or even, sorted or not, with nulls where executors bear them."""
    number, distinct = draw.choice([0, 1, 7, 400, 3_000]), draw.choice([1, 3, 40, 500])
    null_keys, nulls = draw.random() < 0.3, 0.0
    if fold.nulls and mapper in TAKES_ALL:
        nulls = draw.choice([0.1, 0.1, 0.1, 1.0])

    def make(rank: int) -> Any:
        parts = [KEYS[kind][0](rank) for kind in kinds]
        return (parts[0], None if null_keys and rank % 3 == 1 else parts[1]) if len(parts) > 1 else parts[0]

    skew = draw.choice([0.0, 1.0, 3.0])
    weights = [1 / (rank + 1) ** skew for rank in range(distinct)]
    rows: Rows = []
    for rank in draw.choices(range(distinct), weights, k=number):
        key = None if null_keys and rank == 1 and len(kinds) == 1 else make(rank)
        value = draw.randint(-100, 100)
        rows.append((key, None if draw.random() < nulls else f"value {value}" if texts else value))
    if draw.random() < 0.3:
        rows.sort(key=repr)
    if failure is not None:  # three times for one key, so that a function reducer meets it; and another key
        at = draw.randint(0, len(rows))
        rows[at:at] = [(make(0), FATAL)] * 3 + [(make(2), 1)]
    return rows


def _expected(mapped: Rows, fold: Fold, column: str) -> dict[Any, dict[str, Any]]:
    values: dict[Any, list[Value]] = defaultdict(list)
    for key, value in mapped:
        values[key].append(value)
    results = {key: fold.of(of_key) for key, of_key in values.items()}
    named = {"<column>": column}
    return {key: {named.get(name, name): item for name, item in row.items()} for key, row in results.items()}


def _input(draw: random.Random, rows: Rows, place: Path, kinds: list[str], texts: bool) -> dict[str, Any]:
    """Write the rows in some form; returns the section `input`."""
    keys = [key if len(kinds) > 1 else (key,) for key, _ in rows]
    columns = {
        name: pa.array([key[place] for key in keys], KEYS[kind][1])
        for place, (name, kind) in enumerate(zip("kl", kinds, strict=False))
    }
    table = pa.table({**columns, "v": pa.array([value for _, value in rows], pa.string() if texts else pa.int64())})
    if rows and "decimals" not in kinds and draw.random() < 0.2:  # which YAML does not have
        return {"format": "records", "records": table.to_pylist()}
    directory = place / "input"
    directory.mkdir()
    files = draw.randint(1, 3)
    step = max(1, -(-len(rows) // files))
    for number in range(files):
        part = table.slice(number * step, step)
        pq.write_table(part, directory / f"{number}.parquet", row_group_size=draw.choice([50, 1_000]))
    section: dict[str, Any] = {"format": "parquet", "path": "input"}
    return {**section, "select": table.column_names} if draw.random() < 0.15 else section  # then Spark stages it


def _draw_balance(draw: random.Random, job: RandomJob, fold: Fold) -> None:
    """How records find their reducers, and how states are folded on the way."""
    document = job.document
    document["balance"] = {"strategy": "none"}
    if not fold.merges:
        document["grouping"] = draw.choice(["ring", "key"])
        return
    if draw.random() < 0.5:
        document["grouping"] = draw.choice(GROUPINGS)
    else:
        strategy = draw.choice([*BY_STRATEGY])
        soon = {"report_every": 50, "min_queue": 1, "check_seconds": 0.0, "min_delay": 0.0}
        known = {field.name for field in dataclasses.fields(BY_STRATEGY[strategy])}
        document["balance"] = {"strategy": strategy, **{key: soon[key] for key in soon if key in known}}
    document["combiner"] = draw.random() < 0.25
    if draw.random() < 0.2:
        document["output"] = [{}, {"path": "so-far", "publish": {"mode": "table", "every": 0.25}}]


def _draw_output(draw: random.Random, job: RandomJob, output: Path) -> None:
    """What lies at the output, and whether it may be replaced."""
    there = draw.choice(["nothing", "an empty directory", "a result", "a stranger"])
    mode = draw.choice(["error", "overwrite"])
    job.document["output"] = [{"path": "out", "mode": mode}, *job.document.get("output", [])[1:]]
    if there == "nothing":
        return
    output.mkdir()
    if there == "an empty directory":
        return
    (output / "_job.yaml").write_text("name: older\n")
    for number in range(2):
        pq.write_table(pa.table({"old": [number]}), output / f"part-{number:05d}.parquet")
    if there == "a stranger":
        (output / "notes.txt").write_text("mine\n")
    job.before = _files(output)
    if mode == "error":
        job.status, job.error = "refused", "is not empty"
    elif there == "a stranger":
        job.status, job.error = "refused", "notes.txt"


def _draw_reference(draw: random.Random, job: RandomJob, right: str, texts: bool) -> None:
    """A reference, which may be right, wrong, impossible to resolve or fail."""
    column = "count" if right == "count(*)" else "v"
    kind = draw.choice(["right", "right", "wrong", "misspelt", "failing"])
    of_texts = texts and column == "v"
    query = {
        "right": right,
        "wrong": f"coalesce({right}, '') || '!'" if of_texts else f"coalesce({right}, 0) + 1",
        "misspelt": right.replace("v", "w").replace("*", "w"),
        "failing": f"CAST(raise_error('no reference') AS {'STRING' if of_texts else 'BIGINT'}) || {right}",
    }[kind]
    names = ", ".join(["k", "l"][: 1 if job.document["key"] == "k" else 2])
    job.document["reference"] = {"sql": f"SELECT {names}, {query} AS {column} FROM input GROUP BY {names}"}
    if job.status != "ok":
        return
    if kind == "misspelt":
        job.status, job.error = "refused", "reference.sql"
    elif job.expected and kind != "right":
        job.status, job.error = ("mismatch", None) if kind == "wrong" else ("failed", "no reference")


def _files(directory: Path) -> dict[str, bytes]:
    """What a directory holds; nothing if there is none."""
    return {path.name: path.read_bytes() for path in directory.iterdir()} if directory.is_dir() else {}
