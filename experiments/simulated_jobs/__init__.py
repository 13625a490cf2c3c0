"""Jobs for the simulator: the smallest graph, and random jobs, graphs and changes, each made of a seed alone."""
