"""Windows of event time beside Spark Structured Streaming: rates, a state in Python, a hot key, and latency."""
