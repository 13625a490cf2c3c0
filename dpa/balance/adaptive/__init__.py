"""The adaptive strategy: measured load by token and by key in, the cheapest set of moves that evens it out, out."""
