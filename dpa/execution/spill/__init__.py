"""States beyond a task's memory: a budget of bytes, and local disk for what was touched longest ago."""
