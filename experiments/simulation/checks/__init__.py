"""Checks of simulated runs: the invariants of the protocol, and books kept apart from those of the machines."""
