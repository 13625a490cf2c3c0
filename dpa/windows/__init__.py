"""Event time and windows over it, without states: which windows an event is in, and which sessions become one."""
