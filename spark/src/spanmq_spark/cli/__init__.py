"""The nouns `pipeline` and `receiver`."""
