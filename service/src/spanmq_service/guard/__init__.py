"""Access control of the service: tokens, their scopes and their limits."""
