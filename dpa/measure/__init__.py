"""Measurements at a reducer: load by token, by key and in time, and the latency of records."""
