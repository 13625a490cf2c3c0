"""When to redistribute and what to change: triggers, strategies and the metrics of skew. Arithmetic on plain data."""
