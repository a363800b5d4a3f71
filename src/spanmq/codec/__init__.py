"""How bodies become JSON, one by one and in batches, and their encryption."""
