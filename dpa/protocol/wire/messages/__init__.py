"""What machines say to each other, by conversation."""


class Message:
    """Base of all messages."""
