"""Settings of a running Spark session that are changed for a block, and then are what they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from dpa._util.sharing import Shared
from dpa.spark._errors import tidying_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSetting:
    """A setting that has a value of its own while there is a block that needs it, in whatever thread: jobs that run at
    the same time share a session."""

    def __init__(self, name: str, value: str, default: str) -> None:
        """`default` is what it is in a session that says nothing of it."""
        self._name = name
        self._value = value
        self._default = default
        self._shared: Shared[None] = Shared()

    def of(self, spark: SparkSession) -> AbstractContextManager[None]:
        """A block in which a session has the value."""
        return self._shared.use(lambda: self._changed(spark))

    @contextmanager
    def _changed(self, spark: SparkSession) -> Iterator[None]:
        before = spark.conf.get(self._name, self._default) or self._default
        spark.conf.set(self._name, self._value)
        try:
            yield
        finally:
            with tidying_up():
                spark.conf.set(self._name, before)
