"""Source and operator tasks: emit, receive, hand over, exchange, and process."""
