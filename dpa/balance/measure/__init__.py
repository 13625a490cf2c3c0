"""Measuring load at a reducer: by token, by key, and in time."""
