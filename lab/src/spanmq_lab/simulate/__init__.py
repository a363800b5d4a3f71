"""The load simulator: runs a queue under load, and checks the order of delivery from its own log."""
