"""Measuring at a reducer: load by token, by key and in time, and how long records took to get through."""
