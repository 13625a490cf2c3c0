"""Messages, by conversation. Each travels in an envelope, numbered within its (sender, receiver) channel."""
