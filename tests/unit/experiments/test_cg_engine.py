"""The jobs that the experiments with groupings on Ray run are jobs."""

import pyarrow as pa
import pytest

from dpa import Job
from experiments.cg.engine import GROUPINGS


@pytest.mark.parametrize("name", GROUPINGS)
def test_every_grouping_that_is_measured_can_be_asked_for(name: str) -> None:
    job = Job(input=pa.table({"key": ["a"]}), value=[], reducer="count", grouping=GROUPINGS[name])
    assert job.config.grouping.kind == GROUPINGS[name]["kind"]
