"""What a worker shows of itself: reports, durations, stacks and traces."""
