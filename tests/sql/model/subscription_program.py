"""Programs on a queue with a subscription: which gets every message, whatever the queue does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import strategies as st
from tests.sql.model.model import Model
from tests.sql.model.queue_program import QueueProgram, said
from tests.sql.model.recording import always, step


@dataclass(slots=True)
class Published(Model):
    """A queue, and beside it another that gets what is sent."""

    subscribed: Model = field(default_factory=Model)

    def copy(self) -> "Published":
        return Published(
            dict(self.messages),
            dict(self.archive),
            dict(self.dead),
            dict(self.holders),
            self.subscribed.copy(),
        )

    def send(
        self,
        ids: Sequence[int],
        bodies: Sequence[dict[str, int]],
        groups: Sequence[str | None],
        *,
        visible: bool,
    ) -> None:
        Model.send(self, ids, bodies, groups, visible=visible)
        self.subscribed.send(ids, bodies, groups, visible=visible)

    def take_id(self, message_id: int, dedup_id: str) -> None:
        Model.take_id(self, message_id, dedup_id)
        self.subscribed.take_id(message_id, dedup_id)


class SubscriptionProgram(QueueProgram):
    """The program of any queue; and what happens in its subscription."""

    model: Published

    def __init__(self, dsn: str, kind: str) -> None:
        super().__init__(dsn, kind)
        self.model, self.committed = Published(), Published()
        self.name = f"{self.race.queue}_all"
        self.race.main.value("select spanmq.create_subscription(%s, %s)", self.name, self.race.queue)

    def teardown(self) -> None:
        self.session.rollback()
        self.race.main.value("select pgmq.drop_queue(%s)", self.name)
        super().teardown()

    @step(quantity=st.sampled_from((1, 7, 50, 400)), then=st.sampled_from(("ack", "archive", "keep")))
    def receives_from_it(self, quantity: int, then: str) -> None:
        rows = self.session.rows(
            "select msg_id, lease_id from spanmq.receive(%s, %s, 3600)", self.name, quantity
        )
        ids = [message_id for message_id, _ in rows]
        self.model.subscribed.claim(ids, quantity, exact=False, short=False)
        if ids:
            self.model.subscribed.lease(ids, rows[0][1], visible=False)
        if ids and then == "ack":
            acked = self.session.rows(
                "select outcome from spanmq.ack(%s, %s, %s)", self.name, rows[0][1], ids
            )
            assert acked == [("acked",)] * len(ids)
            self.model.subscribed.remove(ids)
        elif ids and then == "archive":
            self.session.rows("select pgmq.archive(%s, %s::bigint[])", self.name, ids)
            self.model.subscribed.remove(ids, archive=True)

    @step()
    def purges_it(self) -> None:
        purged = self.session.value("select pgmq.purge_queue(%s)", self.name)
        assert purged == len(self.model.subscribed.messages)
        self.model.subscribed.messages.clear()

    @always()
    def subscription_shows_what_the_model_says(self) -> None:
        assert self.shown_of_it(self.session) == said(self.model.subscribed)
        if self.in_transaction:
            assert self.shown_of_it(self.race.main) == said(cast(Published, self.committed).subscribed)

    def shown_of_it(self, session: Any) -> list[Any]:
        """Return what the subscription's view and archive show; it has no dead letters."""
        queued = session.rows(
            f"select msg_id, read_ct, vt <= clock_timestamp(), message, headers from pgmq.q_{self.name}"
        )
        archived = session.rows(f"select msg_id, read_ct, message from pgmq.a_{self.name}")
        return [sorted(queued, key=lambda row: row[0]), sorted(archived, key=lambda row: row[0]), []]
