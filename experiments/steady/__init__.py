"""How steady the strategies and groupings are with their defaults: makespan, redistributions, forwarding and latency,
in virtual time and on real actors."""
