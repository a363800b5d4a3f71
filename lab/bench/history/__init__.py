"""Histories: what each client of a queue asked and was answered, and a check that no queue may fail."""

from lab.bench.history.calls import Call, Recorder, kept, read, seen
from lab.bench.history.check import RULES, problems

__all__ = ["RULES", "Call", "Recorder", "kept", "problems", "read", "seen"]
