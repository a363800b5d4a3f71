"""What an export tells its run, in manifests/run.py or ducklake/run.py."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """What an export has compared with the lake: rows that were archived before `since`, a time as text; and when all
    ids were compared (`is_whole`: now), in seconds since 1970.
    """

    since: str
    compared_at: float
    is_whole: bool
