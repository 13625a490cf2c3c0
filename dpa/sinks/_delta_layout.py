"""The protocol and metadata of a Delta table: whether rows may be written to it, and what they must be like."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types

from dpa.errors import TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = frozenset(  # features that `deltalake` writes as readers and other writers expect
    {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
)

_CONSTRAINT, _GENERATED, _INVARIANT = "delta.constraints.", "delta.generationExpression", "delta.invariants"


@dataclass(frozen=True)
class DeltaLayout:
    """As the log of a table has them."""

    protocol: dict[str, Any]
    metadata: dict[str, Any]

    @classmethod
    def of(cls, table: DeltaTable) -> DeltaLayout:
        known, said = table.protocol(), table.metadata()
        protocol = {
            "minReaderVersion": known.min_reader_version,
            "minWriterVersion": known.min_writer_version,
            "readerFeatures": known.reader_features and sorted(known.reader_features),
            "writerFeatures": known.writer_features and sorted(known.writer_features),
        }
        metadata = {
            "id": str(said.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": list(said.partition_columns),
            "configuration": dict(said.configuration),
        }
        return cls({name: value for name, value in protocol.items() if value is not None}, metadata)

    @property
    def entries(self) -> tuple[dict[str, Any], ...]:
        """The first entries in the log of a table like this one."""
        return {"protocol": self.protocol}, {"metaData": self.metadata}

    @property
    def columns(self) -> pa.Schema:
        from deltalake import Schema

        return pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())

    @property
    def partitions(self) -> list[str]:
        """The names of the partition columns."""
        return list(self.metadata["partitionColumns"])

    @property
    def filled(self) -> set[str]:
        """The generated columns: they are computed where rows lack them."""
        return {name for name, known in self._noted if _GENERATED in known}

    @property
    def rules(self) -> list[str]:
        """What rows must be like: SQL of constraints, of generated columns, and of invariants."""
        checks = [
            f"{name.removeprefix(_CONSTRAINT)}: {rule}"
            for name, rule in sorted(self.metadata["configuration"].items())
            if name.startswith(_CONSTRAINT)
        ]
        computed = [f"{name} = {known[_GENERATED]}" for name, known in self._noted if _GENERATED in known]
        invariants = [json.loads(known[_INVARIANT]) for _, known in self._noted if _INVARIANT in known]
        return [*checks, *computed, *(known["expression"]["expression"] for known in invariants)]

    def is_for(self, other: DeltaLayout) -> bool:
        """Whether files that were written for another table may be added to this one."""
        mine, its = ((json.loads(of.metadata["schemaString"]), of.partitions, of.rules) for of in (self, other))
        return mine == its

    def refuse(self, place: str, *, replaces: bool) -> None:
        """Raise a `TableError` if the table cannot be written here, or forbids it; `replaces`: if rows that are there
        are replaced."""
        configuration = self.metadata["configuration"]
        unknown = {*self.protocol.get("writerFeatures", ()), *self.protocol.get("readerFeatures", ())} - _FEATURES
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            unknown.add("columnMapping")
        if any(note.startswith("delta.identity.") for _, known in self._noted for note in known):
            unknown.add("identityColumns")
        if unknown:
            features = f"the table at {place} has features that cannot be written here: {', '.join(sorted(unknown))}"
            raise TableError(f"{features}; drop them there, or name another table")
        if replaces and configuration.get("delta.appendOnly", "false").lower() == "true":
            raise TableError(f"the table at {place} only takes more rows (delta.appendOnly): nothing in it is replaced")
        for name in self.partitions:
            if types.is_binary(self.columns.field(name).type):
                why = f"the table at {place} is partitioned by {name!r}, which is binary"
                raise TableError(f"{why}: such partitions cannot be written here; name another table")

    @property
    def _noted(self) -> list[tuple[str, dict[str, Any]]]:
        """The name and metadata of each column."""
        return [(field["name"], field["metadata"]) for field in json.loads(self.metadata["schemaString"])["fields"]]
