"""Steps on columns: expressions of polars, or SQL texts, and how batches of Arrow go through them."""
