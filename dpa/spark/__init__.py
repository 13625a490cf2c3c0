"""The tables of a job: input, sample, staging, reference and baseline, with Spark where it is needed and only there.

Importing this package imports neither pyspark, as functions that need a session are given one, nor polars, which only
`dpa.spark.comparison` needs.
"""

from dpa.spark._arrow import as_table
from dpa.spark._baseline import spark_loads
from dpa.spark._generated import generated_frame
from dpa.spark._reference import check_reference, compute
from dpa.spark._sample import RowSample, sample_rows, sampled
from dpa.spark._session import spark_session
from dpa.spark._source import Source, load, reads_in_place
from dpa.spark._stage import Kept, frame_of, input_table, schema_of, staged
from dpa.spark._streaming import StreamSource, stream_schema, streamed

__all__ = [
    "Kept",
    "RowSample",
    "Source",
    "StreamSource",
    "as_table",
    "check_reference",
    "compute",
    "frame_of",
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
    "stream_schema",
    "streamed",
]
