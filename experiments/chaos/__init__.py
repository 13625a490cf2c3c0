"""Real jobs of which processes, nodes, drivers and storage are killed, compared with Spark."""
