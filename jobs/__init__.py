"""Executors of the jobs in `configs/`, one job a module."""
