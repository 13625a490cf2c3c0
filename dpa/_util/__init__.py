"""Small helpers without a domain of their own: files and locks, signals, secrets, Arrow types, the version."""
