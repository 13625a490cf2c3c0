"""The last events of machines: kept, written, read in words, and repeated."""
