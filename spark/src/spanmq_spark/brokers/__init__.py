"""Other brokers, into which the job `migrate` sends."""
