"""What the log of a Delta table says of it, besides its rows: whether rows may be written to it, and the beginning of
another table that is like it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types

from dpa.errors import TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
)
"""Those of which `deltalake` writes what readers and other writers rely on."""

_CONSTRAINT, _GENERATED, _INVARIANT = "delta.constraints.", "delta.generationExpression", "delta.invariants"


@dataclass(frozen=True)
class DeltaLayout:
    """The protocol and the metadata of a table, as its log has them."""

    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, table: DeltaTable) -> DeltaLayout:
        """That of a table."""
        known, said = table.protocol(), table.metadata()
        protocol: dict[str, Any] = {
            "minReaderVersion": known.min_reader_version,
            "minWriterVersion": known.min_writer_version,
        }
        if known.reader_features is not None:
            protocol["readerFeatures"] = sorted(known.reader_features)
        if known.writer_features is not None:
            protocol["writerFeatures"] = sorted(known.writer_features)
        metadata = {
            "id": str(said.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": list(said.partition_columns),
            "configuration": dict(said.configuration),
            "createdTime": said.created_time,
        }
        return cls(protocol, metadata)

    @property
    def log(self) -> bytes:
        """The first entry of the log of a table that is like this one."""
        return lines({"protocol": self.protocol}, {"metaData": self.metadata})

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""
        from deltalake import Schema

        return pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())

    @property
    def partitions(self) -> list[str]:
        """The names of the columns by whose values files are apart."""
        return list(self.metadata["partitionColumns"])

    @property
    def filled(self) -> set[str]:
        """The columns that are computed where rows lack them."""
        return {field["name"] for field in self._fields if _GENERATED in field["metadata"]}

    @property
    def rules(self) -> list[str]:
        """What rows must be like, in words: SQL of constraints, of invariants, and of generated columns."""
        configuration, fields = self.metadata["configuration"], self._fields
        checks = [f"{name.removeprefix(_CONSTRAINT)}: {configuration[name]}" for name in self._constraints]
        said = [(field["name"], field["metadata"]) for field in fields]
        computed = [f"{name} = {known[_GENERATED]}" for name, known in said if _GENERATED in known]
        invariants = [json.loads(known[_INVARIANT]) for _, known in said if _INVARIANT in known]
        return [*checks, *computed, *(known["expression"]["expression"] for known in invariants)]

    def is_for(self, other: DeltaLayout) -> bool:
        """Whether rows that were written for another table may be in this one as they are."""
        return self._binding == other._binding

    def refuse(self, place: str, *, replaces: bool) -> None:
        """Check that this package can write to such a table; `replaces`: in place of rows that are there.

        Raises:
            TableError: it cannot, or the table forbids it.
        """
        configuration = self.metadata["configuration"]
        unknown = {*self.protocol.get("writerFeatures", ()), *self.protocol.get("readerFeatures", ())} - _FEATURES
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            unknown.add("columnMapping")
        if any(name.startswith("delta.identity.") for field in self._fields for name in field["metadata"]):
            unknown.add("identityColumns")
        if unknown:
            features = f"the table at {place} has features that cannot be written here: {', '.join(sorted(unknown))}"
            raise TableError(f"{features}; drop them there, or name another table")
        if replaces and configuration.get("delta.appendOnly", "false").lower() == "true":
            raise TableError(f"the table at {place} only takes more rows (delta.appendOnly): nothing in it is replaced")
        for name in self.partitions:
            kind = self.columns.field(name).type
            if types.is_binary(kind):
                why = f"the table at {place} is partitioned by {name!r}, which is {kind}"
                raise TableError(f"{why}: such partitions cannot be written here; name another table")

    @property
    def _fields(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return found

    @property
    def _constraints(self) -> list[str]:
        return sorted(name for name in self.metadata["configuration"] if name.startswith(_CONSTRAINT))

    @property
    def _binding(self) -> tuple[Any, ...]:
        configuration = self.metadata["configuration"]
        constraints = [(name, configuration[name]) for name in self._constraints]
        return self._fields, self.partitions, constraints


def lines(*entries: Mapping[str, Any]) -> bytes:
    """An entry of a log."""
    return "".join(f"{json.dumps(entry)}\n" for entry in entries).encode()
