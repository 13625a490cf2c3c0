"""The tables of a job: input, sample, staging, reference and baseline, with Spark where it is needed and only there.

Importing this package does not import pyspark; functions that need a session are given one.
"""

from dpa.tables._paths import local_directories, local_path
from dpa.tables.baseline import spark_loads
from dpa.tables.comparison import Comparison, compare
from dpa.tables.forecast import TopKeys, key_counts, key_table, sample_rows
from dpa.tables.memory import as_table
from dpa.tables.parquet import ParquetTable, parquet_splits, parquet_table
from dpa.tables.reference import check_reference, compute
from dpa.tables.sample import Sample, sampled
from dpa.tables.session import spark_session
from dpa.tables.source import Source, View, load, reads_in_place
from dpa.tables.stage import input_table, schema_of, staged

__all__ = [
    "Comparison",
    "ParquetTable",
    "Sample",
    "Source",
    "TopKeys",
    "View",
    "as_table",
    "check_reference",
    "compare",
    "compute",
    "input_table",
    "key_counts",
    "key_table",
    "load",
    "local_directories",
    "local_path",
    "parquet_splits",
    "parquet_table",
    "reads_in_place",
    "sample_rows",
    "sampled",
    "schema_of",
    "spark_loads",
    "spark_session",
    "staged",
]
