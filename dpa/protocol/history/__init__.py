"""The last events of machines: recorded, written, printed and replayed."""
