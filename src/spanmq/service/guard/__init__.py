"""Who may do what, and how much of it at once: tokens, scopes and limits."""
