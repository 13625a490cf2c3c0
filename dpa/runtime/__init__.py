"""The state machines on Ray: actors that carry out instructions, and the driver's side of a run. Decides nothing."""
