"""Where splits come from: tables in memory, Parquet read in place, and generators."""
