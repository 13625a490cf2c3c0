"""The figures of the consistent-grouping paper, each measured anew: `python -m experiments.cg --figure N`."""
