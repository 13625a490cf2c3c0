"""Jobs in one process: the machines of `dpa.protocol` without actors, threads or a network."""
