"""The load simulator: runs a queue under load, and checks the order of delivery from its own log."""

from spanmq.simulate.options import CLASSIC_DSN, Options
from spanmq.simulate.report import Report
from spanmq.simulate.run import read_log, run

__all__ = ["CLASSIC_DSN", "Options", "Report", "read_log", "run"]
