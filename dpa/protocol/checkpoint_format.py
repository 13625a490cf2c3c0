"""What checkpoints hold, as plain data, and the number of that form. All that is written of a job goes through here:
what its coordinator knew, the snapshots of its tasks, its dead letters, and the splits in its log by epoch.

Plain data is what later versions can read: builtin values, arrays, Arrow data, and *records*, which are the named
fields of known classes. The pickle names no class, so reading it runs no code. Anything else comes from users, and is
nested as a pickle of its own.

Whoever changes a field of what is listed here, or what it means, gives `FORMAT` the next number. Numbers stay in `READ`
as long as what was written then means the same, as where a field was added that has a default. A checkpoint of each
number lies in tests/formats."""

import io
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa

from dpa._util.version import VERSION
from dpa.checkpoints import DataFiles, Manifest
from dpa.errors import CheckpointError

Dumps: TypeAlias = Callable[[object], bytes]

_VALUES = frozenset({type(None), bool, int, float, str, bytes})
"""Types whose values stand for themselves, as lists do. Anything else is a tuple whose first item says what it is."""

_SEQUENCES: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class PlainError(ValueError):
    """The data is not of this form, or has unknown records."""


class Schema:
    """The known records: dataclasses, written with all their fields."""

    def __init__(
        self,
        kinds: Mapping[str, str],
        derived: Iterable[str] = (),
        foreign: Iterable[str] = (),
        unions: Iterable[str] = (),
    ) -> None:
        """`kinds` maps a module to its records' names, as `name` or `name=Class`. Fields are named as `Record.field`.
        Those in `derived` are not written: their defaults are right. Lists in `foreign` hold users' objects, and are
        pickled whole. Subclasses of records in `unions` are written as these, and made anew by their `of`."""
        pairs = ((module, *each.partition("=")[::2]) for module, names in kinds.items() for each in names.split())
        self.places = {name: (module, given or name) for module, name, given in pairs}
        self.derived, self.foreign, self.unions = frozenset(derived), frozenset(foreign), frozenset(unions)
        self._names = {attribute: name for name, (_, attribute) in self.places.items()}
        self._fields: dict[str, Mapping[str, str]] = {}

    def name_of(self, kind: type) -> str | None:
        for base in kind.__mro__:
            name = self._names.get(base.__qualname__)
            if name is not None and self.kind(name) is base and (base is kind or name in self.unions):
                return name
        return None

    def kind(self, name: str) -> Any:
        """The class of a record. Imports its module on demand."""
        module, attribute = self.places[name]
        return getattr(import_module(module), attribute)

    def fields(self, name: str) -> Mapping[str, str]:
        """A record's fields with their declared types; empty for an unknown record."""
        if name not in self._fields and name in self.places:
            found = (field for field in fields(self.kind(name)) if field.init)
            written = {field.name: str(field.type) for field in found if f"{name}.{field.name}" not in self.derived}
            self._fields[name] = written
        return self._fields.get(name, {})

    def dumps(self, thing: object, dumps: Dumps = pickle.dumps) -> bytes:
        """Serialise a thing; `dumps` pickles users' objects. An object of dpa that is no record is a `TypeError`."""
        return pickle.dumps(_Writer(self, dumps).plain(thing), protocol=5)

    def load(self, file: BinaryIO) -> Any:
        """Read the next thing of a file; arrays and Arrow data are read-only. Raises PlainError."""
        try:
            tree = _Builtins(file).load()
        except Exception as error:  # damaged pickles may raise anything
            raise PlainError(f"{type(error).__name__}: {error}") from None
        return _Reader(self).thing(tree)


class _Writer:
    def __init__(self, schema: Schema, dumps: Dumps) -> None:
        self._schema = schema
        self._dumps = dumps
        self._known: dict[int, tuple[object, Any]] = {}  # by its id, with the object, so that no other one gets that

    def plain(self, thing: Any) -> Any:
        if type(thing) in _VALUES:
            return thing
        known = self._known.get(id(thing))
        if known is None:
            known = self._known[id(thing)] = thing, self._made(thing, type(thing))
        return known[1]

    def _made(self, thing: Any, kind: type) -> Any:
        if kind is list:
            return [self.plain(each) for each in thing]
        if kind.__name__ in _SEQUENCES and kind.__module__ == "builtins":
            return kind.__name__, [self.plain(each) for each in thing]
        if kind is dict:
            return "dict", [self.plain(key) for key in thing], [self.plain(value) for value in thing.values()]
        if (record := self._schema.name_of(kind)) is not None:
            return record, {
                name: self._field(record, name, of, thing) for name, of in self._schema.fields(record).items()
            }
        if isinstance(thing, np.ndarray | np.generic) and not thing.dtype.hasobject:
            return "array" if kind is np.ndarray else "number", thing.dtype.str, thing.shape, thing.tobytes()
        if isinstance(thing, pa.Schema):
            return "schema", thing.serialize().to_pybytes()
        if isinstance(thing, pa.Array):
            return "column", _stream(pa.record_batch([thing], [""]))
        if isinstance(thing, pa.RecordBatch | pa.Table):
            return "table" if isinstance(thing, pa.Table) else "batch", _stream(thing)
        if kind.__module__.partition(".")[0] == "dpa":
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no record, and cannot be written")
        return "foreign", self._dumps(thing)

    def _field(self, record: str, name: str, declared: str, thing: Any) -> Any:
        value = getattr(thing, name)
        if isinstance(value, list) and f"{record}.{name}" in self._schema.foreign:
            return "foreign", self._dumps(value)
        return self.plain(dict(value) if declared.startswith("Mapping") else value)


class _Builtins(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise PlainError(f"it names {module}.{name}, and plain data names no class")


class _Reader:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[int, Any] = {}  # by the ids of parts of the tree, which stays

    def thing(self, tree: Any) -> Any:
        if type(tree) in _VALUES:
            return tree
        if id(tree) not in self._known:
            self._known[id(tree)] = self._made(tree)
        return self._known[id(tree)]

    def _made(self, tree: Any) -> Any:
        match tree:
            case (str() as name, dict() as given) if given.keys() <= self._schema.fields(name).keys():
                found = {
                    field: value if type(value) in _VALUES else self.thing(value) for field, value in given.items()
                }
                record = self._schema.kind(name)
                return (record.of if name in self._schema.unions else record)(**found)
            case list():
                return [self.thing(each) for each in tree]
            case ("tuple" | "set" | "frozenset" as name, [*items]):
                return _SEQUENCES[name](map(self.thing, items))
            case ("dict", [*keys], [*values]):
                return dict(zip(map(self.thing, keys), map(self.thing, values), strict=True))
            case ("array" | "number" as name, str() as dtype, tuple() as shape, bytes() as data):
                array: Any = np.ndarray(shape, dtype, data)
                return array if name == "array" else array[()]
            case ("schema", bytes() as data):
                return pa.ipc.read_schema(pa.py_buffer(data))
            case ("column" | "batch" | "table" as name, bytes() as data):
                rows = pa.ipc.open_stream(data)
                found = rows.read_all() if name == "table" else rows.read_next_batch()
                return found.column(0) if name == "column" else found
            case ("foreign", bytes() as data):
                return pickle.loads(data)
        raise PlainError(f"it holds {str(tree)[:80]}, which is nothing that is known")


def _stream(rows: pa.RecordBatch | pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


FORMAT = 2
"""Of what is written; 1 was pickles of classes."""

READ = frozenset({2})
"""Of what can be read."""

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""States of users are pickles, which may hold code of it."""

SCHEMA = Schema(
    {
        "dpa.execution.arrivals": "Input",
        "dpa.execution.block": "Block",
        "dpa.execution.snapshots": "TaskSnapshot",
        "dpa.execution.states": "Gone StatePart",
        "dpa.protocol.restore": "AskedStage",
        "dpa.protocol.wire.snapshots": "ChannelTime Cut=JobSnapshot OperatorCut=OperatorSnapshot Reached=TimeReached "
        "SourceCut=SourceSnapshot",
        "dpa.protocol.wire.instructions": "Commit",
        "dpa.routing.assignment": "KeySplit Single",
        "dpa.routing.table": "RoutingTable",
        "dpa.sinks.delta": "DeltaLayout DeltaPart=_Part",
        "dpa.sources.feed": "Position",
        "dpa.sources.foreign": "ForeignSplit",
        "dpa.sources.generated": "GeneratedSplit ReadRate",
        "dpa.sources.ipc": "IpcSplit",
        "dpa.sources.kafka": "KafkaSplit RecordFormat",
        "dpa.sources.lines": "LineFormat LinesSplit",
        "dpa.sources.scans": "ScanFormat ScanSplit",
        "dpa.sources.splits": "FirstRows MemorySplit NumberedSplit ParquetSplit",
        "dpa.sources.united": "UnitedSplit",
        "dpa.sources.watched": "Seen",
        "dpa.tolerance": "ErrorCount Failed Letter",
    },
    derived=("ReadRate.clock", "ReadRate.sleep"),
    foreign=("StatePart.states",),
    unions=("StatePart",),
)


def written(thing: object, dumps: Dumps = pickle.dumps) -> bytes:
    """A thing as it is written, after the number of the format; `dumps` pickles what users bring."""
    return b"%d\n" % FORMAT + SCHEMA.dumps(thing, dumps)


def read(data: bytes, place: str) -> Iterator[Any]:
    """The things that were written one after another; `place` is where, for messages. Raises CheckpointError if it is
    of another format, or damaged."""
    file = io.BytesIO(data)
    while line := file.readline():
        number = int(line) if line[:-1].isdigit() else 1  # which were pickles alone
        _require(number, f"{place} is")
        try:
            yield SCHEMA.load(file)
        except PlainError as error:
            raise CheckpointError(f"{place} cannot be read: {error}") from None


def headed(about: str, known: object, dumps: Dumps) -> list[bytes]:
    """What a coordinator knows, below a line of JSON that says who wrote it, and how; `about`: of the job, as JSON."""
    head = {"format": FORMAT, "dpa": VERSION, "python": PYTHON, "about": json.loads(about)}
    return [json.dumps(head).encode(), b"\n", written(known, dumps)]


def below_head(data: DataFiles, checkpoint: Manifest) -> tuple[Any, bytes]:
    """What a checkpoint says about its job, and what its coordinator knew, to be `read`. Raises CheckpointError if it
    cannot be read, or another version of dpa or Python wrote it."""
    head, _, rest = data.read(checkpoint.coordinator).partition(b"\n")
    said = json.loads(head)
    by = said["writer"] if "writer" in said else f"dpa {said['dpa']} on Python {said['python']}"
    _require(said.get("format", 1), f"{data.job} was written by {by},")
    if said["python"] != PYTHON:
        why = f"states in it are pickles, and this is Python {PYTHON}"
        raise CheckpointError(f"{data.job} was written by {by}; {why}: resume it with that Python")
    return said["about"], rest


def _require(number: int, what: str) -> None:
    if number not in READ:
        here = f"this dpa ({VERSION}) reads {', '.join(map(str, sorted(READ)))}"
        mend = "use the version that wrote it, or run the job from the start"
        raise CheckpointError(f"{what} in format {number} of checkpoints, and {here}: {mend}")
