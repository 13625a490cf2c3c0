"""Experiment 1 of the DPA paper (section 6.3, Table 1): the skew S of five workloads with and without balancing."""
