"""The schema of spanmq, as a migration."""
