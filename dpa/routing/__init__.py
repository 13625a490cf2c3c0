"""Which reducer owns a key: hashing, the token ring and the routing tables made of it. Knows no load and no
messages."""

MOST_TASKS = 256
"""Most tasks of a stage."""
