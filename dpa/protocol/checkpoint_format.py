"""What checkpoints hold, as plain data, and the number of that form. All that is written of a job goes through here:
what its coordinator knew, the snapshots of its tasks, its dead letters, and the splits in its log by epoch.

Whoever changes a field of what is listed here, or what it means, gives `FORMAT` the next number. Numbers stay in `READ`
as long as what was written then means the same, as where a field was added that has a default. A checkpoint of each
number lies in tests/formats.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from dpa._util.plain import Dumps, PlainError, Schema
from dpa._util.version import VERSION
from dpa.checkpoints import DataFiles, Manifest
from dpa.errors import CheckpointError

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
        "dpa.protocol.wire.cut": "ChannelTime Cut OperatorCut Reached SourceCut",
        "dpa.protocol.wire.instructions": "Commit",
        "dpa.routing.assignment": "KeySplit Single",
        "dpa.routing.table": "RoutingTable",
        "dpa.sinks.delta": "DeltaLayout DeltaPart=_Part",
        "dpa.sources.feed": "Position",
        "dpa.sources.foreign": "ForeignSplit",
        "dpa.sources.generated": "GeneratedSplit ReadRate",
        "dpa.sources.kafka": "KafkaSplit RecordFormat",
        "dpa.sources.lines": "LineFormat LinesSplit",
        "dpa.sources.splits": "FirstRows MemorySplit NumberedSplit ParquetSplit",
        "dpa.sources.watched": "Seen",
        "dpa.tolerance": "ErrorCount Failed Letter",
    },
    derived=("ReadRate.clock", "ReadRate.sleep"),
    foreign=("StatePart.states",),
)


def written(thing: object, dumps: Dumps = pickle.dumps) -> bytes:
    """A thing as it is written, behind the number of the format; `dumps` pickles what users bring."""
    return b"%d\n" % FORMAT + SCHEMA.dumps(thing, dumps)


def read(data: bytes, place: str) -> Iterator[Any]:
    """The things that were written one after another; `place` is where, for messages.

    Raises:
        CheckpointError: it is of another format, or damaged.
    """
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
    """What a checkpoint says about its job, and what its coordinator knew, to be `read`.

    Raises:
        CheckpointError: it cannot be read, or another version of dpa or Python wrote it.
    """
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
        mend = "use the version that wrote it, or run the job anew"
        raise CheckpointError(f"{what} in format {number} of checkpoints, and {here}: {mend}")
