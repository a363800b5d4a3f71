"""Records what streams of Spark do: a batch is claimed by one call, read by another, and settled by the next claim."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from lab.bench.history.calls import Pending, Recorder

CLAIM, RANGES = "receiver_claim", "receiver_ranges"
# Of a lease, for the number of the batch; the rest is of the receiver.
BATCH_BITS = 22


def lease_of(receiver: str, batch: int) -> int:
    """Return what stands for the lease of a batch: its number is its receiver's alone."""
    return -((UUID(receiver).int >> (128 - 62 + BATCH_BITS) << BATCH_BITS) | batch)


class Streams:
    """What the streams of this process have begun."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # Claims that have an answer, until the messages of the batch are known.
        self._claims: dict[int, Pending] = {}
        # Claims of the batch after the one that is read, whose answer nobody reads.
        self._ahead: dict[str, Pending] = {}
        self._confirmed: set[int] = set()

    def begin(self, function: str, values: Mapping[str, Any]) -> "Claim | Ranges":
        """Write the beginning of a call."""
        receiver = values["receiver"]
        if function == RANGES:
            first, batch = int(values["after"]) + 1, int(values["batch"])
            if batch > first:
                raise NotImplementedError("several batches at a time")
            lease = lease_of(receiver, batch)
            # A driver that was started again has the batch from its checkpoint.
            is_known = lease in self._claims
            reading = self._claims.pop(lease, None) or self._recorder.call("claim")
            return Ranges(reading, lease, is_known=is_known, is_empty=batch < first)
        settled, is_ahead = int(values["settled"]), values.get("ahead") is not None
        lease = lease_of(receiver, settled)
        confirming = None
        if settled and not is_ahead and lease not in self._confirmed:
            confirming = self._recorder.call("confirm", lease=lease)
        return Claim(self, receiver, settled, confirming, self._recorder.call("claim"), is_ahead=is_ahead)

    def confirmed(self, receiver: str, batch: int) -> None:
        """Remember that a batch is settled: each claim that follows says so again."""
        self._confirmed.add(lease_of(receiver, batch))

    def claimed_ahead(self, receiver: str, claiming: Pending) -> None:
        """Remember a claim that may have claimed the next batch."""
        self._ahead[receiver] = claiming

    def claimed(self, receiver: str, batch: int | None, claiming: Pending) -> None:
        """Remember the receiver that has claimed a batch, or record that it got none."""
        first = self._ahead.pop(receiver, claiming)
        ended = [pending for pending in (first, claiming) if pending is not first]
        lease = None if batch is None else lease_of(receiver, batch)
        if lease is None or lease in self._claims:
            ended.append(first)
        else:
            self._claims[lease] = first
        for pending in ended:
            pending.got = []
            pending.end()


class Claim:
    """A claim under way, which also settles."""

    def __init__(
        self,
        streams: Streams,
        receiver: str,
        settled: int,
        confirming: Pending | None,
        claiming: Pending,
        *,
        is_ahead: bool,
    ) -> None:
        self._streams, self._receiver, self._settled = streams, receiver, settled
        self._confirming, self._claiming, self._is_ahead = confirming, claiming, is_ahead

    def end(self, result: Any) -> None:
        """Write the answer, or remember it until the messages of the batch are known."""
        if self._is_ahead:
            self._streams.claimed_ahead(self._receiver, self._claiming)
            return
        if self._confirming is not None:
            self._confirming.end()
            self._streams.confirmed(self._receiver, self._settled)
        [(batch, _, _)] = result
        self._streams.claimed(self._receiver, None if batch == self._settled else batch, self._claiming)

    def raised(self, error: BaseException) -> None:
        """Write that the call had no effect, if its error says so."""
        self._claiming.raised(error)
        if self._confirming is not None:
            self._confirming.raised(error)


class Ranges:
    """A call under way that asks for the messages of a batch, which has been claimed."""

    def __init__(self, claiming: Pending, lease: int, *, is_known: bool, is_empty: bool) -> None:
        self._claiming, self._lease = claiming, lease
        self._is_known, self._is_empty = is_known, is_empty

    def end(self, result: Any) -> None:
        """Write which messages the claim has."""
        pieces = () if self._is_empty else result
        self._claiming.got = [
            (message_id, self._lease)
            for low, high, _, bitmap in pieces
            for message_id in range(low, high + 1)
            if bitmap is None or bitmap[message_id & 1023] == "1"
        ]
        self._claiming.end()

    def raised(self, error: BaseException) -> None:
        """Write that nothing was claimed, unless a claim before has."""
        if not self._is_known:
            self._claiming.raised(error)
