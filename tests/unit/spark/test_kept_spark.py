"""Which Spark is kept from job to job of a session."""

import sys

from dpa.spark._session import users_path


def test_what_ray_and_spark_add_to_the_search_path_starts_no_other_spark(monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", ["/job", "/venv/site-packages"])
    before = users_path()
    sys.path.insert(1, "/venv/site-packages/ray/thirdparty_files")
    sys.path.insert(1, "/tmp/dpa-spark-x/spark-1/userFiles-2")
    assert users_path() == before == ("/job", "/venv/site-packages")
    sys.path.insert(0, "/another")
    assert users_path() != before
