"""Lists that a reader sorts and filters, by the parameters `order` and `find` of the URL: the same for every list."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from spanmq_service.dashboard.formatting import address
from spanmq_service.dashboard.page_request import PageRequest, RefusedError

Row = TypeVar("Row")
# What sorts a column, and whether its largest value comes first.
Keys = Mapping[str, tuple[Callable[[Row], Any], bool]]

ASCENDING: Final = "ascending"
DESCENDING: Final = "descending"


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """The rows that match, in order; `order` is a column, with - in front the other way round, "" as they come."""

    rows: list[Row]
    order: str
    find: str
    path: str
    query: Mapping[str, str]
    keys: Keys[Row]

    def href(self, column: str) -> str:
        """Return the URL that sorts by a column, or the other way round if the rows are sorted by it."""
        order = f"-{column}" if self.order == column else column
        return address(self.path, order=order, find=self.find, **self.query)

    def sorted_as(self, column: str) -> str | None:
        """Return how the rows are sorted by a column, in the words of aria-sort; None if they are not."""
        if self.order.lstrip("-") != column:
            return None
        return DESCENDING if self.keys[column][1] != self.order.startswith("-") else ASCENDING


def listing_of(
    request: PageRequest,
    path: str,
    rows: Iterable[Row],
    keys: Keys[Row],
    text: Callable[[Row], str],
    **query: str,
) -> Listing[Row]:
    """Return the rows whose `text` contains what the URL names, in the order that it names.

    `query` are other parameters of the URL, which stay. Raises RefusedError for an unknown order.
    """
    order, sought = request.text("order"), request.text("find").strip()
    column = order.removeprefix("-")
    if column and column not in keys:
        raise RefusedError(400, "No such order", f"Rows can be ordered by {', '.join(keys)}.")
    matches = [row for row in rows if sought.lower() in text(row).lower()]
    if column:
        key, is_descending = keys[column]
        matches.sort(key=key, reverse=is_descending != order.startswith("-"))
    return Listing(matches, order, sought, path, query, keys)
