"""Ranges of ids, or of places of rows, with both ends included."""

from bisect import bisect_right
from typing import Final

# The ids that a lake has are noted for each 32,768, in the lake and in the database: an export writes few of them.
BLOCK_BITS: Final = 15

Ranges = list[tuple[int, int]]


def by_block(ids: Ranges) -> dict[int, Ranges]:
    """Cut ranges of ids at the borders of blocks."""
    parts: dict[int, Ranges] = {}
    for first, last in ids:
        for block in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1):
            low = block << BLOCK_BITS
            part = (max(first, low), min(last, low + (1 << BLOCK_BITS) - 1))
            parts.setdefault(block, []).append(part)
    return parts


def size_of(ids: Ranges) -> int:
    """Return how many ids ranges have."""
    return sum(last - first + 1 for first, last in ids)


def union(ids: Ranges, more: Ranges) -> Ranges:
    """Join ranges: sorted, apart from each other."""
    joined: Ranges = []
    for first, last in sorted([*ids, *more]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def without(ids: Ranges, other: Ranges) -> Ranges:
    """Return the parts of sorted ranges that are in none of the other sorted ranges."""
    parts: Ranges = []
    place = 0
    for first, last in ids:
        start = first
        while place < len(other) and other[place][1] < first:
            place += 1
        at = place
        while at < len(other) and other[at][0] <= last:
            if start < other[at][0]:
                parts.append((start, other[at][0] - 1))
            start = max(start, other[at][1] + 1)
            at += 1
        if start <= last:
            parts.append((start, last))
    return parts


def has(ids: Ranges, id_: int) -> bool:
    """Return whether an id is in sorted ranges."""
    place = bisect_right(ids, id_, key=lambda part: part[0]) - 1
    return place >= 0 and id_ <= ids[place][1]


def within(ids: Ranges, first: int, last: int) -> Ranges:
    """Return the parts of sorted ranges that lie between two ids."""
    return [(max(a, first), min(b, last)) for a, b in ids if b >= first and a <= last]
