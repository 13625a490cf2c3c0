"""The tables of a job: input, sample, staging, reference and baseline, with Spark where it is needed and only there.

Importing this package imports neither pyspark, as functions that need a session are given one, nor polars, which only
`dpa.spark.comparison` needs.
"""

from dpa.spark.baseline import spark_loads
from dpa.spark.frames import as_table
from dpa.spark.generated import generated_frame, write_generated
from dpa.spark.reference import check_reference, compute
from dpa.spark.sample import Sample, sample_rows, sampled
from dpa.spark.session import spark_session
from dpa.spark.source import Source, View, load, reads_in_place
from dpa.spark.stage import input_table, schema_of, staged

__all__ = [
    "Sample",
    "Source",
    "View",
    "as_table",
    "check_reference",
    "compute",
    "generated_frame",
    "input_table",
    "load",
    "reads_in_place",
    "sample_rows",
    "sampled",
    "schema_of",
    "spark_loads",
    "spark_session",
    "staged",
    "write_generated",
]
