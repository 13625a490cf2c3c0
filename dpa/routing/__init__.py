"""Which reducer owns a key: hashing, the token ring and the routing tables made of it. Knows no load and no
messages."""
