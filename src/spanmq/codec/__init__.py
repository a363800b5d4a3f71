"""Conversion of bodies to JSON, one by one and in batches, and their encryption."""
