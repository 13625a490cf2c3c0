"""What Spark makes of the naive Bayes job's input: the same counts by other means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def pairs(lines: DataFrame) -> DataFrame:
    """Count (feature, class) pairs with Spark's own functions; the rules are those of `jobs.naive_bayes`."""
    from pyspark.sql import functions as f

    spaces = r"[\s\x1c-\x1f\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
    words = f.filter(f.split(f.col("value"), spaces), lambda word: word != "")
    first = f.col("words")[0]
    label = (
        f.when(first.isin("import", "from"), "import")
        .when(first.isin("def", "class", "async"), "definition")
        .when(first.startswith("#"), "comment")
        .otherwise("code")
    )
    training = lines.where(f.length("value") % 10 != 0).select(words.alias("words")).where(f.size("words") >= 2)
    distinct = f.array_distinct(f.slice("words", 2, f.size("words")))
    with_prior = training.select(label.alias("label"), f.explode(f.concat(f.array(f.lit("*")), distinct)).alias("word"))
    counted = with_prior.groupBy("word", "label").count()
    return counted.select(f.concat_ws("\t", "word", "label").alias("pair"), f.col("count").alias("value"))
