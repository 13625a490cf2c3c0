"""The load balancer: load reports in, numbered routing tables out."""
