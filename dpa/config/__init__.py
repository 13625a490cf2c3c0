"""The job file: its schema, defaults, overrides and errors."""

from dpa.config.files import JobFile, load, parse
from dpa.config.inputs import InputConfig
from dpa.config.schema import JobConfig, json_schema
from dpa.config.stage import ExecutorConfig

__all__ = ["ExecutorConfig", "InputConfig", "JobConfig", "JobFile", "json_schema", "load", "parse"]
