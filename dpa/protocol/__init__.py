"""The distributed part as state machines: events in, instructions out. Knows no Ray, no clock and no thread."""
