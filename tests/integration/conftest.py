import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Two test processes that start Ray at once would both write the user's token.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

# Small inputs in memory would run in the process of the test, and these are tests of jobs on Ray.
os.environ.setdefault("DPA_BACKEND", "ray")

# Ray's processes note how they do for a dashboard, which no test has and which costs each a tenth of its start.
os.environ.setdefault("RAY_enable_metrics_collection", "0")
os.environ.setdefault("RAY_event_stats", "0")

# A JVM that lives for seconds takes longest to compile; one of its two compilers is a fast one. Its smallest collector
# of garbage starts soonest.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark session for all tests that ask for one; jobs that run meanwhile use it too."""
    conf = {
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.maxResultSize": "8m",  # nothing large goes through the driver's heap
    }
    with spark_session("tests", "local[2]", conf) as session:
        yield session


@pytest.fixture(scope="session")
def ray() -> "Iterator[None]":
    """One embedded Ray for all tests that ask for it; the jobs that they run use it and leave it up."""
    with ray_session(None, object_store_mb=512):
        yield
