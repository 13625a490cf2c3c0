"""The skew S: its limits, and the ten static values of the DPA paper, which only the right ring gives."""

from pathlib import Path

import pytest

from dpa.job import Job
from dpa.measure.skew import skew
from jobs.letters import WORKLOADS

PAPER = Path(__file__).parents[3] / "configs" / "paper"

# The paper prints 0.55 for WL5 under doubling. Its counts are multiples of 4, from which 0.55 cannot come: it is 0.52.
STATIC = {
    ("halving", "wl1"): 0.00,
    ("halving", "wl2"): 0.00,
    ("halving", "wl3"): 1.00,
    ("halving", "wl4"): 0.80,
    ("halving", "wl5"): 0.20,
    ("doubling", "wl1"): 1.00,
    ("doubling", "wl2"): 0.00,
    ("doubling", "wl3"): 1.00,
    ("doubling", "wl4"): 0.49,
    ("doubling", "wl5"): 0.52,
}


@pytest.mark.parametrize(("strategy", "workload"), STATIC)
def test_the_first_table_has_the_skew_that_the_paper_reports(strategy: str, workload: str) -> None:
    job = Job.from_file(PAPER / f"{workload}.yaml", [f"balance.strategy={strategy}"])
    ring = job.config.balance.ring(job.config.parallelism.reducers)
    owners = [ring.key_lookup(letter) for letter in WORKLOADS[workload]]
    assert len(owners) == 100
    assert round(skew([owners.count(reducer) for reducer in range(4)]), 2) == STATIC[strategy, workload]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_job_file_of_a_workload_has_its_letters_and_the_constants_of_all(workload: str) -> None:
    config, first = (Job.from_file(PAPER / f"{name}.yaml").config for name in (workload, "wl1"))
    assert config.input is not None
    assert config.input.records == list(WORKLOADS[workload])
    assert config == first.model_copy(update={"name": workload, "input": config.input})
