"""The tables of a job: input, sample, staging, reference and baseline, with Spark only where it is needed.

Importing this package imports neither pyspark (the caller passes the session) nor polars, which only
`dpa.spark.comparison` needs.
"""

from dpa.spark._errors import quoted
from dpa.spark._exchange import as_table, generated_frame
from dpa.spark._reference import QUERY, check_reference, compute, spark_loads
from dpa.spark._session import spark_kept, spark_session
from dpa.spark._source import RowSample, Source, load, reads_in_place, sample_rows, sampled
from dpa.spark._stage import Kept, beside, frame_of, input_table, schema_of, staged
from dpa.spark._streaming import StreamSource, stream_schema, streamed

__all__ = [
    "QUERY",
    "Kept",
    "RowSample",
    "Source",
    "StreamSource",
    "as_table",
    "beside",
    "check_reference",
    "compute",
    "frame_of",
    "generated_frame",
    "input_table",
    "load",
    "quoted",
    "reads_in_place",
    "sample_rows",
    "sampled",
    "schema_of",
    "spark_kept",
    "spark_loads",
    "spark_session",
    "staged",
    "stream_schema",
    "streamed",
]
