"""What a program that has set OpenTelemetry up sees of a run."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dpa import Flow
from dpa.protocol.wire.epochs import OpenEpoch
from dpa.protocol.wire.metrics import CheckpointTry
from dpa.telemetry.spans import spans_of
from dpa.telemetry.tracker import RunTracker
from dpa.testing import LocalBackend


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", lambda name, _version: provider.get_tracer(name))
    return exporter


def seconds(span: ReadableSpan, began: float) -> tuple[str, float, float]:
    assert span.start_time is not None and span.end_time is not None
    return span.name, span.start_time / 1e9 - began, span.end_time / 1e9 - began


def test_epochs_and_checkpoints_have_spans_of_the_time_that_they_took(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpa.telemetry.spans.time.time", lambda: 1_000_001.0)
    [spans] = spans_of("job")

    def see(at: float, epoch: int, began: float, **changes: Any) -> None:
        snapshot = replace(samples.snapshot(at), epoch=OpenEpoch(epoch, began), **changes)
        spans.update(RunTracker().update(snapshot))

    spans.update(RunTracker().update(replace(samples.snapshot(0.0), epoch=None)))
    see(1.0, 1, 0.0)
    tries = (CheckpointTry(0, 2.0, 0.5, 70), CheckpointTry(1, 3.0, 0.25, 0, "the disk is full"))
    see(2.25, 2, 2.0)
    see(4.0, 4, 3.5, checkpoint_tries=tries)
    see(5.0, 4, 3.5, checkpoint_tries=tries)
    see(6.0, 4, 3.5, checkpoint_tries=tries, phase="done")
    found = exporter.get_finished_spans()
    assert [seconds(span, 1_000_000.0) for span in found] == [
        ("dpa.epoch", 0.0, 2.0),
        ("dpa.checkpoint", 2.0, 2.5),
        ("dpa.checkpoint", 3.0, 3.25),
        ("dpa.epoch", 2.0, 3.5),
        ("dpa.epoch", 3.5, 6.0),
    ]
    whole = [dict(span.attributes or {}) for span in found]
    assert {(each["dpa.job"], each["dpa.generation"]) for each in whole} == {("job", 0)}
    epochs = [each for each in whole if "dpa.epoch" in each]
    assert [(each["dpa.epoch"], each["dpa.epochs"]) for each in epochs] == [(1, 1), (3, 2), (4, 1)]
    assert sum(each.get("dpa.rows", 0) for each in whole) == samples.snapshot(6.0).records.read
    assert [(each["dpa.checkpoint"], each["dpa.bytes"]) for each in whole if "dpa.bytes" in each] == [(0, 70), (1, 0)]
    assert [span.status.description for span in found if not span.status.is_ok] == ["the disk is full"]


def test_an_epoch_of_a_generation_that_died_has_no_span_and_none_has_without_opentelemetry(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    [spans] = spans_of("job")
    for generation, epoch in ((0, 1), (1, 1), (1, 2)):
        snapshot = replace(samples.snapshot(1.0), epoch=OpenEpoch(epoch, 0.0), generation=generation)
        spans.update(RunTracker().update(snapshot))
    assert [(span.attributes or {})["dpa.generation"] for span in exporter.get_finished_spans()] == [1]
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert spans_of("job") == []


def test_the_rows_of_all_spans_of_a_run_are_those_of_its_input(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    flow = Flow("spans")
    counts = flow.read([{"n": n % 7} for n in range(500)]).key_by("n").reduce("count")
    counts.write(str(tmp_path / "out"), publish={"mode": "table", "every": 1})
    flow.run(backend=LocalBackend(row_seconds=0.01))
    found = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    assert sum(each["dpa.rows"] for each in found) == 500 and sum(each["dpa.epochs"] for each in found) > 3
