"""The job file: its schema, defaults, overrides and errors."""

from dpa.config.files import JobFile, load, parse
from dpa.config.inputs import InputConfig
from dpa.config.schema import JobConfig, json_schema
from dpa.config.sinks import OutputConfig, ReferenceConfig
from dpa.config.stage import AggregationConfig, ExecutorConfig
from dpa.config.stages import StepConfig

__all__ = [
    "AggregationConfig",
    "ExecutorConfig",
    "InputConfig",
    "JobConfig",
    "JobFile",
    "OutputConfig",
    "ReferenceConfig",
    "StepConfig",
    "json_schema",
    "load",
    "parse",
]
