"""Looking at dead letters, and sending them through mended executors into the result (docs/dead-letters.md)."""
