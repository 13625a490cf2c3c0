"""The programs in Python. Each gets the paths of `orders` and `customers`, and gives a result of few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dpa import Flow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dpa import Result


def best_dpa(orders: str, customers: str) -> Result:
    """The ten products with the greatest sales in a country."""
    shop, euros = Flow("best"), pl.col("euros")
    buyers = shop.read(customers)
    paid = shop.read(orders).filter(pl.col("cents") > 0).with_columns(euros=pl.col("cents") / 100)
    products = paid.join(buyers, on="customer").key_by("country", "product")
    sales = products.agg(
        n=pl.len(), total=euros.sum(), most=euros.max(), mean=euros.mean(), buyers=pl.col("customer").n_unique()
    )
    sales.top_k(10, by="total")
    return shop.run()


def best_polars(orders: str, customers: str) -> pl.DataFrame:
    """The same in polars."""
    euros = pl.col("euros")
    paid = pl.scan_parquet(orders).filter(pl.col("cents") > 0).with_columns(euros=pl.col("cents") / 100)
    products = paid.join(pl.scan_parquet(customers), on="customer").group_by("country", "product")
    sales = products.agg(
        n=pl.len(), total=euros.sum(), most=euros.max(), mean=euros.mean(), buyers=pl.col("customer").n_unique()
    )
    return sales.top_k(10, by="total").collect(engine="streaming")


def best_spark(spark: SparkSession, orders: str, customers: str) -> pa.Table:
    """The same in Spark."""
    from pyspark.sql import functions as F  # noqa: N812

    paid = spark.read.parquet(orders).filter("cents > 0").withColumn("euros", F.col("cents") / 100)
    sales = (
        paid.join(spark.read.parquet(customers), "customer")
        .groupBy("country", "product")
        .agg(
            F.count("*").alias("n"),
            F.sum("euros").alias("total"),
            F.max("euros").alias("most"),
            F.avg("euros").alias("mean"),
            F.count_distinct("customer").alias("buyers"),
        )
    )
    return sales.orderBy(F.desc("total")).limit(10).toArrow()


def best_duckdb(orders: str, customers: str) -> pa.Table:
    """The same in duckdb."""
    import duckdb

    query = f"""
        SELECT country, product, count(*) AS n, sum(cents / 100) AS total, max(cents / 100) AS most,
            avg(cents / 100) AS mean, count(DISTINCT customer) AS buyers
        FROM '{orders}' JOIN '{customers}' USING (customer)
        WHERE cents > 0
        GROUP BY country, product
        ORDER BY total DESC
        LIMIT 10
    """
    return duckdb.sql(query).to_arrow_table()


def segments_dpa(orders: str, customers: str) -> Result:
    """The sum of the sales of each segment of customers."""
    shop = Flow("segments")
    buyers = shop.read(customers)
    known = shop.read(orders).join(buyers, on="customer")
    known.key_by("segment").agg(total=pl.col("cents").sum())
    return shop.run()


def segments_polars(orders: str, customers: str) -> pl.DataFrame:
    """The same in polars."""
    known = pl.scan_parquet(orders).join(pl.scan_parquet(customers), on="customer")
    return known.group_by("segment").agg(total=pl.col("cents").sum()).collect(engine="streaming")


def segments_spark(spark: SparkSession, orders: str, customers: str) -> pa.Table:
    """The same in Spark."""
    known = spark.read.parquet(orders).join(spark.read.parquet(customers), "customer")
    return known.groupBy("segment").agg({"cents": "sum"}).withColumnRenamed("sum(cents)", "total").toArrow()


def segments_duckdb(orders: str, customers: str) -> pa.Table:
    """The same in duckdb."""
    import duckdb

    known = f"'{orders}' JOIN '{customers}' USING (customer)"
    return duckdb.sql(f"SELECT segment, sum(cents)::bigint AS total FROM {known} GROUP BY segment").to_arrow_table()
