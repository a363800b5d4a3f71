"""Adapters for hardbyte/postgresql-job-queue-benchmarking, and a run of its phases that needs no container."""
