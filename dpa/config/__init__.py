"""The job file: its schema, defaults, overrides and errors."""

from dpa.config.files import JobFile, load, parse
from dpa.config.schema import ExecutorConfig, JobConfig, json_schema

__all__ = ["ExecutorConfig", "JobConfig", "JobFile", "json_schema", "load", "parse"]
