"""Random jobs on real Ray and Spark against plain Python. `RANDOM_JOBS=200` runs as many; CI runs a few."""

import os
from pathlib import Path

import pytest
from random_jobs import random_job

from dpa import Job
from dpa.errors import ConfigError

JOBS = int(os.environ.get("RANDOM_JOBS", "7"))


@pytest.mark.usefixtures("ray", "spark")
@pytest.mark.parametrize("seed", range(JOBS))
def test_a_random_job_comes_to_what_plain_python_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = random_job(seed, tmp_path)
    try:
        result = Job.from_file(job.write(tmp_path)).run(check=False)
    except ConfigError as error:
        assert job.error is not None and job.error in str(error), error
        job.check(tmp_path, None, None)
        return
    if job.error is not None:
        with pytest.raises(Exception, match=job.error):
            result.check()
    job.check(tmp_path, result.report, result.table() if job.error is None else None)
