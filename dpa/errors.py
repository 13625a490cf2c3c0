"""The exceptions of dpa. Every one says what was wrong, where, and what would be right."""

from __future__ import annotations


class DpaError(Exception):
    """Base of every error that dpa raises on purpose; `exit_status` is what the command line returns for it."""

    exit_status = 1


class ConfigError(DpaError):
    """A job file, an override or an argument is wrong. Raised before any actor or Spark job starts."""

    exit_status = 2


class TableError(DpaError):
    """An input, sample or output table cannot be read or written as asked."""


class SparkLostError(TableError):
    """Spark's JVM has ended, or does not answer any more, whatever it was asked."""


class ExecutorError(DpaError):
    """User code failed or broke its contract: names the executor, the record's key and the original traceback."""


class KeyTypeError(ExecutorError):
    """A key is of a type that is not supported, or one job mixes two types of keys."""


class BalanceError(DpaError):
    """The balancer was asked for something that cannot be, such as to relieve a reducer that does not exist."""


class ProtocolError(DpaError):
    """An invariant of the protocol (docs/design, invariants) would have been broken: a bug in dpa, never in a job."""


class JobFailedError(DpaError):
    """The job ended without a result: user code failed, an actor died, or it was interrupted."""


class ReferenceMismatchError(DpaError):
    """The result differs from the Spark reference."""

    exit_status = 3
