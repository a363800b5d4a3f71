"""Admission of one request, and the budgets of requests whose client is unknown."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

from starlette.types import Scope

from spanmq.client.calls import forget
from spanmq_service.http.failure import Refusal
from spanmq_service.http.request_origin import address_of

UNSIGNED_BYTES_MAX: Final = 64 * 1024 * 1024
# All bodies of one token that are being received or answered.
CALLER_BYTES_MAX: Final = 64 * 1024 * 1024
# An answer of at most this many bytes is in the socket's buffers at once: it waits for no client.
ANSWER_BYTES_FREE: Final = 64 * 1024


class Budget:
    """Requests that wait for unknown clients, by owner: an address, or an access key and an address.

    One that is too many ends the one that has waited the longest, of the owner with the most: a client that
    sends its body at once is served however many slow ones there are. If none `can_end`, it is refused itself,
    and an owner may have half.
    """

    def __init__(
        self, requests_max: int, bytes_max: int = UNSIGNED_BYTES_MAX, *, can_end: bool = True
    ) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._can_end = can_end
        self._bytes = 0
        self.count = 0
        self._admissions_of: dict[str, OrderedDict[Admission, None]] = {}

    def begin(self, admission: Admission) -> None:
        """Count a request; raises 503 if it can't be counted."""
        if (
            not self._can_end
            and len(self._admissions_of.get(admission.owner, ())) >= (self._requests_max + 1) // 2
        ):
            raise overloaded()
        if self.count >= self._requests_max:
            if not self._can_end:
                raise overloaded()
            self._end_longest()
        self.count += 1
        self._admissions_of.setdefault(admission.owner, OrderedDict())[admission] = None

    def grow(self, admission: Admission, size: int) -> None:
        """Count bytes that a request has sent; raises 503 if it has to end itself."""
        self._bytes += size
        while self._bytes > self._bytes_max and admission.budget is self:
            self._end_longest()
        if admission.budget is not self:
            raise overloaded()

    def end(self, admission: Admission) -> None:
        """Release what a request took."""
        self.count -= 1
        self._bytes -= admission.size
        admissions = self._admissions_of[admission.owner]
        del admissions[admission]
        if not admissions:
            del self._admissions_of[admission.owner]

    def _end_longest(self) -> None:
        most = max(self._admissions_of.values(), key=len)
        next(iter(most)).expel()


class ConcurrencyLimit:
    """A number of requests of each caller at once; its further requests wait, in order."""

    def __init__(self, of_one: int) -> None:
        self._of_one = of_one
        self._of_callers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def acquire(
        self, caller: str, gone: Callable[[], Awaitable[object]] | None = None
    ) -> asyncio.Semaphore:
        """Wait for a slot, and return what releases it; raises 400 when `gone` returns before."""
        own = self._of_callers.get(caller)
        if own is None:
            own = self._of_callers[caller] = asyncio.Semaphore(self._of_one)
        if gone is None or not own.locked():
            await own.acquire()
            return own
        leaving = asyncio.ensure_future(gone())
        forget(leaving)
        acquiring = asyncio.ensure_future(own.acquire())
        try:
            await asyncio.wait({leaving, acquiring}, return_when=asyncio.FIRST_COMPLETED)
            if not acquiring.done():
                raise Refusal(400, "invalid_request", "the client has hung up")
        except BaseException:
            if acquiring.done() and not acquiring.cancelled():
                own.release()
            acquiring.cancel()
            raise
        finally:
            leaving.cancel()
        return own


class Arrivals:
    """Counts requests of unknown clients: those that arrive, and in three budgets those that wait for clients."""

    def __init__(self, anonymous_max: int) -> None:
        self.arriving = 0
        # Bodies of clients without credentials; of those that name an access key that exists; large answers.
        self.bodies = Budget(anonymous_max)
        self.signed_bodies = Budget(anonymous_max)
        self.answers = Budget(anonymous_max, can_end=False)

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait for unknown clients."""
        return self.bodies.count + self.signed_bodies.count + self.answers.count


class Admission:
    """One request: the budget in which it counts, and the bytes that its body may have."""

    __slots__ = (
        "_arrivals",
        "_has_signature",
        "body_bytes_max",
        "budget",
        "bytes_of_callers",
        "caller",
        "is_exempt",
        "is_expelled",
        "on_expelled",
        "owner",
        "size",
        "slot",
    )

    def __init__(self, arrivals: Arrivals, scope: Scope, *, is_exempt: bool, body_bytes_max: int) -> None:
        self._arrivals = arrivals
        self._has_signature = False
        # Bytes of the body that have arrived.
        self.size = 0
        self.budget: Budget | None = None
        self.is_exempt = is_exempt
        self.body_bytes_max = body_bytes_max
        # The address, with the access key that the request claims to be signed with.
        self.owner = address_of(scope)
        self.caller: str | None = None
        # The bytes of all bodies by their callers, once this one's is known.
        self.bytes_of_callers: Counter[str] | None = None
        self.slot: asyncio.Semaphore | None = None
        self.is_expelled = False
        # Ends the wait for the client.
        self.on_expelled: Callable[[], None] = nothing

    def expect_signed(self, access_key_id: str, body_bytes_max: int) -> None:
        """Count the request by an access key that exists, and its address, from now on."""
        self._has_signature = True
        self.owner = f"{access_key_id} {self.owner}"
        self.body_bytes_max = body_bytes_max

    def wait_for_body(self) -> None:
        """Move to the budget of bodies, unless the client is known."""
        arrivals = self._arrivals
        self._begin(arrivals.signed_bodies if self._has_signature else arrivals.bodies)

    def wait_for_reader(self, size: int | None) -> None:
        """Move to the budget of answers for one of this size, unless it is small or the client is known."""
        if size is None or size > ANSWER_BYTES_FREE:
            self._begin(self._arrivals.answers)

    def _begin(self, budget: Budget) -> None:
        if self.caller is None and self.budget is None and not self.is_exempt:
            budget.begin(self)
            self.budget = budget
            self._arrivals.arriving -= 1

    def grow(self, size: int) -> None:
        """Count bytes of the body; raises 413 if it is too large, 503 if those of all clients are."""
        self.size += size
        if self.is_expelled:
            raise overloaded()
        if self.budget is not None:
            self.budget.grow(self, size)
        if self.caller is not None and self.bytes_of_callers is not None:
            self.bytes_of_callers[self.caller] += size
        if self.size > self.body_bytes_max:
            raise too_large(self.body_bytes_max)
        if self._caller_bytes() > max(CALLER_BYTES_MAX, self.body_bytes_max):
            raise Refusal(429, "too_many_requests", "this token sends too many bytes at once", retry_after=1)

    def _caller_bytes(self) -> int:
        if self.caller is None or self.bytes_of_callers is None:
            return 0
        return self.bytes_of_callers[self.caller]

    def end_wait(self) -> None:
        """Leave the budget of those that wait, if the request is in one; it counts as arriving again."""
        if self.budget is not None:
            self.budget.end(self)
            self.budget = None
            self._arrivals.arriving += 1

    def expel(self) -> None:
        """End the request, because others that arrived since need its place."""
        self.end_wait()
        self.is_expelled = True
        self.on_expelled()


def nothing() -> None:
    """Do nothing."""


def release_slot(admission: Admission | None) -> None:
    """Release the slot of a request, if it has one."""
    if admission is not None and admission.slot is not None:
        admission.slot.release()
        admission.slot = None


def too_large(most: int) -> Refusal:
    """Return the refusal of a body of more than `most` bytes."""
    return Refusal(413, "request_too_large", f"this request may have {most:,} bytes at most")


def overloaded() -> Refusal:
    """Return the refusal of a request that exceeds the service's capacity."""
    return Refusal(503, "overloaded", "the service is overloaded", retry_after=1)
