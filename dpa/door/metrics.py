"""A run's view as metrics for Prometheus, in OpenMetrics or in Prometheus' older text format.

Names follow Prometheus' conventions: `dpa_` first, base units, `_total` for counters. A counter starts again with each
generation of the job, which Prometheus handles as a reset. No label holds a key or another text of the user's records.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

_RANKS = 10  # hot keys of a stage that have series
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}
_UNITS = ("seconds", "bytes", "records", "rows", "ratio")


class Family(NamedTuple):
    """The series of one name.

    Attributes:
        path: where the values are in a view. A part in braces is a label, and stands for each key of an object or each
            rank in a list; `*` adds up what is below all keys. The text that a part with `=` has is a label too, of a
            series that is 1.
        factor: what a value of the view is multiplied by.
    """

    name: str
    path: str
    help: str
    factor: float = 1.0

    @property
    def kind(self) -> str:
        """As OpenMetrics has it."""
        return "counter" if self.name.endswith("_total") else "summary" if "quantile" in self.labels else "gauge"

    @property
    def labels(self) -> tuple[str, ...]:
        """Of each series."""
        return "job", *(part.strip("{}=") for part in self.path.split(".") if part[-1] in "}=")


_STAGE, _TASK = "stages.{stage}.", "stages.{stage}.tasks.{task}."

FAMILIES = (
    Family("dpa_job_phase", "phase=", "1 for the phase that the job is in."),
    Family("dpa_job_start_time_seconds", "began", "When the job began, in seconds since 1970."),
    Family("dpa_job_restarts_total", "job.generation", "Restarts of the job after deaths of processes."),
    Family("dpa_job_bottleneck", "bottleneck.stage=", "1 for the stage that limits the run."),
    Family("dpa_input_rows", "rows", "Rows of the whole input; 0 if their number is unknown."),
    Family("dpa_records_left_out_total", "errors.*.records", "Records that raised in user code or were unreadable."),
    Family("dpa_rows_read_total", _STAGE + "records.read", "Rows read from the input."),
    Family("dpa_records_mapped_total", _STAGE + "records.mapped", "Records made of rows that were read."),
    Family("dpa_records_emitted_total", _STAGE + "records.emitted", "Records sent to the next stages."),
    Family("dpa_records_processed_total", _STAGE + "records.processed", "Records processed."),
    Family("dpa_records_forwarded_total", _STAGE + "records.forwarded", "Forwards to the new owner of a record's key."),
    Family("dpa_stage_busy_ratio", _STAGE + "load.busy", "Part of the tasks' time in user code, of late."),
    Family("dpa_stage_busiest_ratio", _STAGE + "load.busiest", "The same of the busiest task."),
    Family("dpa_stage_blocked_ratio", _STAGE + "load.blocked", "Part of their time waiting for credit downstream."),
    Family("dpa_stage_waiting_ratio", _STAGE + "load.waiting", "Part of their time waiting for input."),
    Family("dpa_stage_queue_seconds", _STAGE + "queue_seconds", "Time that the stage needs for its queued records."),
    Family("dpa_stage_skew_ratio", _STAGE + "skew", "Skew S of the processed records; 0 is even, 1 all on one task."),
    Family("dpa_stage_latency_seconds", _STAGE + "latency.{quantile}", "Time from source to processed."),
    Family("dpa_stage_watermark_timestamp_seconds", _STAGE + "event_time.watermark", "Event time reached.", 1e-6),
    Family("dpa_rebalance_decisions_total", _STAGE + "decision_counts.{outcome}", "Looks at the load, by outcome."),
    Family("dpa_hot_key_share_ratio", _STAGE + "hot_keys.{rank}.share", "Share of the records with one key, by rank."),
    Family("dpa_hot_key_share_low_ratio", _STAGE + "hot_keys.{rank}.low", "Lower bound of this share."),
    Family("dpa_lag_records", _STAGE + "lag.{partition}.records", "Records that the input has and no task has read."),
    Family("dpa_lag_seconds", _STAGE + "lag.{partition}.seconds", "Age of the first of these records."),
    Family("dpa_task_queue_records", _TASK + "queue", "Records accepted and not yet processed."),
    Family("dpa_task_records_processed_total", _TASK + "processed", "Records processed or left out."),
    Family("dpa_task_busy_seconds_total", _TASK + "busy_seconds", "Time in user code and in reading the input."),
    Family("dpa_task_blocked_seconds_total", _TASK + "blocked_seconds", "Time waiting for credit downstream."),
    Family("dpa_task_waiting_seconds_total", _TASK + "waiting_seconds", "Time waiting for input."),
    Family("dpa_task_cpu_seconds_total", _TASK + "cpu_seconds", "Processor time of the task's process."),
    Family("dpa_task_peak_memory_bytes", _TASK + "peak_memory", "Largest resident set of the task's process."),
    Family("dpa_task_state_memory_bytes", _TASK + "state_memory", "Most memory of states, if it is limited."),
    Family("dpa_task_info", _TASK + "node=", "1, with the node of the task."),
    Family("dpa_epochs_total", "epochs.number", "Epochs that ended."),
    Family("dpa_epoch_age_seconds", "epochs.open.age", "Time since the open epoch began."),
    Family("dpa_epoch_wait_seconds_total", "epochs.seconds", "Time that sources waited for epochs to end."),
    Family("dpa_epoch_phase_seconds_total", "epochs.phases.{phase}.seconds", "Time of all epochs in a phase."),
    Family("dpa_epoch_visible_after_seconds", "epochs.visible_after", "Mean time from reading a row to its results."),
    Family("dpa_checkpoints_written_total", "checkpoints.written", "Complete checkpoints."),
    Family("dpa_checkpoints_failed_total", "checkpoints.failed", "Checkpoints that could not be written."),
    Family("dpa_checkpoint_written_bytes_total", "checkpoints.size", "Size of all checkpoints written."),
    Family("dpa_checkpoint_age_seconds", "checkpoints.age", "Time since the newest checkpoint."),
    Family("dpa_checkpoint_duration_seconds", "checkpoints.duration", "Time that the newest checkpoint took."),
)


def exposition(view: Mapping[str, Any], accept: str = "") -> tuple[bytes, str]:
    """The metrics, and their content type: OpenMetrics if the request's header `Accept` names it, otherwise the text
    format, which `promtool check metrics` reads."""
    encode, content_type = choose_encoder(accept)
    return encode(_Metrics(view)), content_type


@dataclass(frozen=True)
class _Metrics(Collector):
    view: Mapping[str, Any]

    def collect(self) -> Iterator[Metric]:
        job = {"job": self.view["job"]["name"]}
        for family in FAMILIES:
            name = family.name.removesuffix("_total")
            unit = name.rpartition("_")[2]
            metric = Metric(name, family.help, family.kind, unit if unit in _UNITS else "")
            for labels, value in _values(self.view, family.path.split(".")):
                metric.add_sample(family.name, job | labels, value * family.factor)
            if metric.samples:
                yield metric


def _values(found: Any, path: list[str]) -> Iterator[tuple[dict[str, str], float]]:
    """The numbers at the end of a path, each with its labels. What the view does not have gives none."""
    if found is None:
        return
    if not path:
        yield {}, found
        return
    part, *rest = path
    name = part.strip("{}=")
    if part == "*":
        yield {}, sum(number for each in found.values() for _, number in _values(each, rest))
    elif part[-1] == "=":
        yield from [({name: found[name]}, 1.0)] if found.get(name) else []
    elif part[0] != "{":
        yield from _values(found.get(part), rest)
    else:
        branches: Any = found.items() if isinstance(found, dict) else enumerate(found[:_RANKS])
        if name == "quantile":
            branches = [(quantile, found.get(key)) for key, quantile in _QUANTILES.items()]
        for key, each in branches:
            yield from ((labels | {name: str(key)}, number) for labels, number in _values(each, rest))
