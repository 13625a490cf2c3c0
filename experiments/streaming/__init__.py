"""Windows of event time beside Spark Structured Streaming: rates, a hot key, and latency."""
