"""The adaptive strategy: from measured load by token and by key to the cheapest set of moves that evens it out."""
