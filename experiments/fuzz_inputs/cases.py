"""Cases: an input of a reader, what a job does with its rows, and what becomes of bad ones; drawn by a number."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from dpa import Feed, Flow, Page, Process, Reducer, batch_filter, batch_mapper, session, sliding, tumbling
from dpa.aggregates import Distinct, Max, Min, Sum, TopK
from dpa.flow import KeyedRows, Stream
from dpa.sources.columns import of_json
from dpa.sources.kafka import RecordFormat
from dpa.sources.splits import MemorySplit
from dpa.testing import LocalBackend
from experiments.fuzz_inputs import columns, files

READERS = (
    *("table", "table", "batches", "records", "pandas", "polars", "feed", "parquet", "parquet", "two files"),
    *("watched parquet", "watched text", "watched csv", "watched json", "kafka", "declared"),
)
STEPS = (*("map", "filter", "flat_map", "batch map", "batch filter", "union", "none"),)
WINDOWS = ("tumbling", "tumbling", "sliding", "session")
ENDS = (
    *(
        "count",
        "sum",
        "min",
        "max",
        "top_k",
        "top of all",
        "distinct",
        "objects",
        "process",
        "join",
        "outer join",
        "write",
    ),
    *("key function", "first", "count of pairs"),
)
NAMES = ("k", "v", "at", "w", "", "a b", "K", "é", "count", "v_right", "x.y", "window_end", "value", "key", "`", "\x00")


@dataclass
class Case:
    """One case.

    Attributes:
        number: by which, with a seed, it is drawn.
        words: what it is, for people.
        timed: whether its rows have a time.
    """

    number: int
    draw: random.Random
    place: Path
    words: list[str] = field(default_factory=list)
    timed: bool = False

    @classmethod
    def of(cls, seed: int, number: int, place: Path) -> Case:
        """The case of a number."""
        return cls(number, random.Random(f"{seed}:{number}"), place)

    def run(self) -> None:
        """Run its job in this process; `words` grow meanwhile. Raises whatever it raises."""
        sections: dict[str, Any] = {"limits": {"batch_records": self.draw.choice((2, 1_000))}}
        on_error = self._choice(("fail", "fail", "skip", "dead_letter"))
        if on_error != "fail":
            sections["on_error"] = on_error
        if on_error == "dead_letter":
            sections["dead_letters"] = str(self.place / "dead")
        flow = Flow("fuzz", **sections)
        self.timed = self.draw.random() < 0.5
        rows = self._read(flow, "left")
        for _ in range(self.draw.choice((0, 1, 1, 2))):
            rows = self._step(flow, rows)
        self._end(flow, rows)
        result = flow.run(backend=LocalBackend())
        result.table("last")

    def _choice(self, among: tuple[str, ...]) -> str:
        chosen = self.draw.choice(among)
        self.words.append(chosen)
        return chosen

    def table(self) -> pa.Table:
        """Rows with a key, a value and a time, most often, and others."""
        draw, rows = self.draw, self.draw.choice((0, 1, 2, 7, 40))
        kinds = [("k", draw.choice((pa.string(), pa.int64(), columns.any_type(draw))))]
        kinds.append(("v", draw.choice((pa.int64(), columns.any_type(draw), columns.any_type(draw)))))
        kinds.append(("at", columns.time_type(draw)))
        kinds += [(draw.choice(NAMES), columns.any_type(draw)) for _ in range(draw.choice((0, 0, 1, 2)))]
        if self.words[-1] == "declared":
            kinds = kinds[:2]
        if draw.random() < 0.9:
            kinds = list(dict(kinds).items())
        self.words.append(f"{rows} rows of {', '.join(f'{name!r} {kind}' for name, kind in kinds)}")
        arrays = [columns.column(kind, rows, draw) for _, kind in kinds]
        return pa.Table.from_arrays(arrays, names=[name for name, _ in kinds])

    def _time(self) -> Any:
        unit = self._choice(("none", "none", "none", "s", "ms", "us"))
        column = self.draw.choice(("at",) * 20 + ("v", "nowhere"))
        return column if unit == "none" else {"column": column, "unit": unit}

    def _read(self, flow: Flow, name: str) -> Stream:
        reader = self._choice(READERS)
        given = self._given(reader)
        options: dict[str, Any] = {"schema": {"k": "string", "v": "int64"}} if reader == "declared" else {}
        return flow.read(given, name=name, time=self._time() if self.timed else None, **options)

    def _given(self, reader: str) -> Any:
        place = self.place / f"in{len(self.words)}"
        place.mkdir()
        if reader.startswith("watched") and reader != "watched parquet":
            kind = reader.rpartition(" ")[2]
            for number in range(self.draw.choice((1, 1, 2))):
                data = files.lines(kind, self.draw)
                self.words.append(repr(data[:80]))
                (place / f"{number}.{kind}").write_bytes(data)
            declared = self.draw.choice((None, None, {"k": "string"}, {"k": "string", "v": "int64"}))
            header = self.draw.choice(("true", "true", "false"))
            options = {"options": {"header": header}} if kind == "csv" else {}
            watch = {"settle": 0.0} | ({} if declared is None or kind == "text" else {"columns": declared})
            return {"format": kind, "path": str(place), "watch": watch, **options}
        table = self.table()
        match reader:
            case "parquet" | "two files" | "watched parquet":
                made = files.parquet(table, place / "0.parquet", self.draw)
                if reader == "two files":
                    other = table if self.draw.random() < 0.5 else self.table()
                    files.parquet(other, place / "1.parquet", self.draw)
                watch = {"watch": {}} if reader == "watched parquet" else {}
                return {"format": "parquet", "path": str(place), **watch} if made else table
            case "batches":
                return pa.Table.from_batches(table.to_batches(3), table.schema)
            case "kafka":
                return self._kafka(table.schema)
            case "feed":
                return {
                    "format": "feed",
                    "use": "experiments.fuzz_inputs.cases:_Given",
                    "args": {"place": self._kept(table)},
                }
        return _in_python(reader, table)

    def _kept(self, table: pa.Table) -> str:
        """Where a feed finds its table: JSON of a job file has none."""
        where = f"{self.number}-{len(_TABLES)}"
        _TABLES[where] = table
        return where

    def _kafka(self, drawn: pa.Schema) -> pa.Table:
        draw, declared = self.draw, pa.schema(dict(zip(drawn.names, drawn.types, strict=True)))
        values = (b'{"k": "a", "v": 1}', b"{}", None, b'{"at": 1700000000000}', draw.choice(files.WRONG))
        messages = [
            Message(topic="t", partition=0, offset=offset, key=draw.choice((b"k", None)), value=draw.choice(values))
            for offset in range(draw.choice((1, 5)))
        ]
        kind, tolerates = draw.choice(("bytes", "string")), draw.random() < 0.5
        records = RecordFormat(kind, "json", of_json(declared), tolerates)
        batch, _ = records.batch(messages, records.schema.names)
        return pa.Table.from_batches([batch])

    def _step(self, flow: Flow, rows: Stream) -> Stream:
        word = self._choice(STEPS + WINDOWS * (2 if self.timed else 0))
        functions: dict[str, Any] = {"map": _same, "filter": _true, "flat_map": _twice, "batch map": _same_batch}
        functions["batch filter"] = _true_batch
        if word in functions:
            return getattr(rows, word.rpartition(" ")[2])(functions[word])
        windows = {"tumbling": tumbling("24h"), "sliding": sliding("1h", "7m"), "session": session("1s")}
        if word in windows:
            return rows.window(windows[word])
        if word == "union":
            return rows.union(self._read(flow, f"other{len(self.words)}"))
        return rows

    def _end(self, flow: Flow, rows: Stream) -> None:
        draw, word = self.draw, self._choice(ENDS)
        key: Any = draw.choice(("k",) * 8 + ("v", "v", ["k", "v"], ["v", "at"], "at", None, "nowhere"))
        value = draw.choice(("v", "v", None, ["v", "at"], "k"))
        self.words.append(f"key {key}, value {value}")
        column = value if isinstance(value, str) else "v"
        keyed: KeyedRows = rows.key_by(key, value=value)
        ends: dict[str, Callable[[], Any]] = {
            "sum": lambda: keyed.reduce(Sum(column), name="last"),
            "min": lambda: keyed.reduce(Min(column), name="last"),
            "max": lambda: keyed.reduce(Max(column), name="last"),
            "top_k": lambda: keyed.top_k(2, by=column, name="last"),
            "top of all": lambda: rows.top_k(2, by=column, name="last"),
            "distinct": lambda: keyed.reduce(Distinct(), name="last"),
            "objects": lambda: keyed.reduce(_Number(), name="last"),
            "first": lambda: keyed.reduce(TopK(1), name="last"),
            "process": lambda: keyed.process(_Same(), name="last"),
            "join": lambda: keyed.join(self._read(flow, "right").key_by(key), name="last"),
            "outer join": lambda: keyed.join(self._read(flow, "right").key_by(key), "full", name="last"),
            "write": lambda: keyed.reduce("count", name="last").write(str(self.place / "out")),
            "key function": lambda: rows.key_by(_first_value).reduce("count", name="last"),
            "count of pairs": lambda: keyed.reduce("count").map(_same).key_by(None).reduce("count", name="last"),
        }
        ends.get(word, lambda: keyed.reduce("count", name="last"))()


def _in_python(reader: str, table: pa.Table) -> Any:
    """The table as an object of another library, where that has such values."""
    try:
        if reader == "records":
            return table.to_pylist()
        if reader == "pandas" and not any(map(_ends_pandas, table.schema.types)):
            return table.to_pandas()
        if reader == "polars":
            import polars as pl

            frame = pl.from_arrow(table)
            if "\0" not in "".join(table.column_names):
                pa.table(frame)  # it panics where it cannot give back what it has taken
            return frame
    except BaseException:  # of theirs: what they cannot hold is none of the cases
        return table
    return table


def _ends_pandas(kind: pa.DataType) -> bool:
    """Whether Arrow may end the process where it makes a column of pandas of such a type."""
    return pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)


_TABLES: dict[str, pa.Table] = {}


class _Given(Feed):
    """A feed whose splits bring a table along."""

    def __init__(self, place: str) -> None:
        self._table = _TABLES[place]

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page([MemorySplit(self._table)])


def _same(record: dict[str, Any]) -> dict[str, Any]:
    return record


def _true(record: dict[str, Any]) -> bool:
    return True


def _twice(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record
    yield record


def _first_value(record: dict[str, Any]) -> Any:
    return next(iter(record.values()))


@batch_mapper
def _same_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@batch_filter
def _true_batch(batch: pa.RecordBatch) -> list[bool]:
    return [True] * batch.num_rows


class _Number(Reducer[int, int]):
    """How many values there are."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right


class _Same(Process[int, Any]):
    """Gives each value as it came."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> Any:
        return state + 1, [value if isinstance(value, dict) and value else {"value": value}]
