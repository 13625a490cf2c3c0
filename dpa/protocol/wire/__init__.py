"""What machines say to each other and to their drivers: addresses, channels, messages, events, instructions."""
