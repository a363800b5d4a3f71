"""The load simulator: what a queue does under a load, and from its own records whether order held."""

from spanmq.simulate.options import CLASSIC_DSN, Options
from spanmq.simulate.report import Report
from spanmq.simulate.run import read_log, run

__all__ = ["CLASSIC_DSN", "Options", "Report", "read_log", "run"]
