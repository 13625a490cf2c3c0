"""Pictures of hand-overs, drawn from what the state machines do in the simulator."""
