"""The state machines of `dpa.protocol` in virtual time, with a network that delays, reorders and duplicates."""
