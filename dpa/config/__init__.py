"""The job file: its schema, defaults, overrides and errors."""

from dpa.config._files import JobFile, load, parse, parse_written
from dpa.config._schema import DoorConfig, JobConfig, NodeConfig, PlacementConfig, json_schema
from dpa.config._sinks import OutputConfig, ReferenceConfig
from dpa.config._stage import MADE_IN_PYTHON, Combiner, ExecutorConfig, ReducerConfig
from dpa.config.inputs import InputConfig
from dpa.config.stages import StepConfig

__all__ = [
    "MADE_IN_PYTHON",
    "Combiner",
    "DoorConfig",
    "ExecutorConfig",
    "InputConfig",
    "JobConfig",
    "JobFile",
    "NodeConfig",
    "OutputConfig",
    "PlacementConfig",
    "ReducerConfig",
    "ReferenceConfig",
    "StepConfig",
    "json_schema",
    "load",
    "parse",
    "parse_written",
]
