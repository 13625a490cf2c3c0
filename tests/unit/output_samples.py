"""Jobs with an output, and what lies there afterwards."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.config import JobFile, parse
from dpa.driver import outputs
from dpa.driver.outputs import Publication
from dpa.execution.publishing import Publishes
from dpa.sinks.sink import Sink

AnySink = TypeVar("AnySink", bound=Sink)

RESULT = ["_job.yaml", "part-00000.parquet"]


def job(path: Path | str, mode: str = "overwrite", **sections: object) -> JobFile:
    return of({"key": "word", "output": {"path": str(path), "mode": mode}, **sections})


def of(sections: Mapping[str, object]) -> JobFile:
    """A job with these sections, and with an input and a reducer."""
    return parse({"input": {"format": "given"}, "reducer": "count", **sections}, origin="job")


def publication(file: JobFile) -> Publication:
    """Of the result of a job."""
    return Publication.of(file, file.config.output[0], "output")


def publishing(sink: AnySink, publishes: Publishes | None) -> AnySink:
    """The sink, of a job whose epochs publish this."""
    sink.know(replace(sink.job_context, publishes=publishes))
    return sink


def check_outputs(file: JobFile) -> None:
    outputs.check_outputs(file, outputs.outputs_of(file))


def write(file: JobFile, value: int = 1) -> None:
    """Run a job whose result is one part."""
    check_outputs(file)
    with publication(file) as output:
        staged = output.sink.stage(pa.table({"word": ["a"], "value": [value]}), 0, 0)
        assert output.commit([staged]) == ("part-00000.parquet",)


def value_in(directory: Path) -> int:
    return int(pq.read_table(directory)["value"][0].as_py())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
