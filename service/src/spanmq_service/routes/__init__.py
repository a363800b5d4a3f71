"""The routes of /v1, a module a noun, and the table that they stand in."""
