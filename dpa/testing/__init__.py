"""Helpers for tests of your own jobs: run executors or a whole job in this process, and check the laws that a
mergeable reducer must keep, and what a feed promises.

None needs Ray but `LocalCluster`, which starts several nodes of it on this machine. `run_local`,
and a job on `LocalBackend`, go through the same blocks and states as a real run, split over several reducers with a
redistribution half way, so what only shows with more than one reducer shows here.
"""

from dpa.driver.backend import LocalBackend
from dpa.errors import ExecutorError
from dpa.testing._cluster import LocalCluster
from dpa.testing._feeds import FeedError, check_feed
from dpa.testing._laws import LawError, check_reducer_laws
from dpa.testing._local import run_local

__all__ = [
    "ExecutorError",
    "FeedError",
    "LawError",
    "LocalBackend",
    "LocalCluster",
    "check_feed",
    "check_reducer_laws",
    "run_local",
]
