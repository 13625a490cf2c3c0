"""Helpers for tests of your own jobs: run executors or a whole job in this process, and check the laws of a mergeable
reducer and the promises of a feed.

Only `LocalCluster` needs Ray: it starts several nodes on this machine. `run_local`, and a job on `LocalBackend`, use
the same blocks and states as a real run, split over several reducers, with keys that move while the job runs. So errors
that need more than one reducer show here."""

from dpa.errors import ExecutorError
from dpa.local.backend import LocalBackend
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
