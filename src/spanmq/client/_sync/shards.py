# Generated from src/spanmq/client/_async/shards.py by tools/generate_sync.py: change that file.

"""One logical queue over several queues, of one server or of several."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import count
from time import monotonic
from typing import Any, Final, Unpack, cast

from spanmq.client import functions
from spanmq.client._sync.client import Client
from spanmq.client.argument import Delay, Seconds, duration
from spanmq.codec.body import Headers
from spanmq.errors import InvalidArgumentError, QueueNotFoundError, ShardsChangedError, SpanmqError
from spanmq.model import Message, Policy, PolicyChange, QueueMetrics, Settled
from spanmq.model.shard_map import ROUTINGS, Routing, ShardMap, heaviest, newest, sum_of

# How long receive() listens to one shard before it looks at all of them again.
SLICE_SECONDS: Final = 0.1
# A map rarely changes; this number of changes during one call means a loop.
CHANGES_MAX: Final = 20


class ShardedQueue:
    """The `queue` of this name in parts.

    `servers` is one client, or a client for each name of a server in the map. By group (the default), all messages of
    a group are in one shard, in order; while the shards change, a group stays where it has messages, and moves when
    they are settled. By key, a message goes to shard `key` modulo their number. By turn, to the next. Settle what
    `receive` gave with the methods here: they know the shard's server. Raises InvalidArgumentError for servers that
    are not clients; a call raises QueueNotFoundError if there is no map, and what the clients raise.
    """

    def __init__(self, queue: str, servers: Client | Mapping[str, Client]) -> None:
        self.queue = queue
        untyped: object = {"": servers} if isinstance(servers, Client) else servers
        clients: dict[str, Any] = dict(untyped) if isinstance(untyped, Mapping) else {"": untyped}
        if not all(isinstance(client, Client) for client in clients.values()):
            raise InvalidArgumentError(
                f"a sharded queue needs a {Client.__name__}, or a mapping from servers to them",
                queue=queue,
            )
        self.servers: dict[str, Client] = clients
        if not self.servers:
            raise InvalidArgumentError("a sharded queue needs a server", queue=queue)
        self._map: ShardMap | None = None
        self._turn = count()
        self._next_shard = count()

    # The map.

    def create(
        self,
        shards: Sequence[str] | Mapping[str, str],
        *,
        routing: Routing = "group",
        policy: PolicyChange | None = None,
    ) -> ShardMap:
        """Create the shards, queues of these names, and the map; does nothing if there is a map already.

        `shards` are their names with those of their servers, or only their names when there is one server. `routing`
        is "group", "key" or "turn". `policy` has settings for all of them. Returns the map. Raises
        InvalidArgumentError for an unknown routing or server, MissingPrivilegeError without the right to create
        queues.
        """
        if routing not in ROUTINGS:
            raise InvalidArgumentError(f"routing must be one of {', '.join(ROUTINGS)}, got {routing!r}")
        there = self._look()
        if there is not None:
            return there
        shard_map = ShardMap(queue=self.queue, epoch=1, routing=routing, shards=self._placed(shards))
        self._make(shard_map.shards, policy or {})
        self._publish(shard_map)
        return self.shards()

    def shards(self) -> ShardMap:
        """Return the newest map; raises QueueNotFoundError without one."""
        there = self._look()
        if there is None:
            raise QueueNotFoundError(
                f"there are no shards of {self.queue}",
                hint="ShardedQueue.create() creates them.",
                queue=self.queue,
            )
        return there

    def change(self, shards: Sequence[str] | Mapping[str, str]) -> ShardMap:
        """Begin to use other `shards`, as `create` takes them; return the new map.

        New ones are created with the policy of the others, none is dropped. Groups that move stay where they have
        messages until these are settled; then `finish` ends the change. Raises ShardsChangedError while another
        change is under way.
        """
        before = self.shards()
        if before.former is not None:
            raise ShardsChangedError(
                f"the shards of {self.queue} are being changed",
                hint="finish() ends the change when no group has to move any more.",
                queue=self.queue,
            )
        shard_map = replace(
            before, epoch=before.epoch + 1, shards=self._placed(shards), former=dict(before.shards)
        )
        added = {name: server for name, server in shard_map.shards.items() if name not in before.shards}
        self._make(added, cast("PolicyChange", asdict(self.policy())))
        self._publish(shard_map)
        return self.shards()

    def finish(self) -> bool:
        """End a change if no group is left to move and removed shards are empty; return whether none is open.

        Cheap to repeat; waits for current senders. Raises ShardsChangedError if another change has begun meanwhile.
        """
        there = self.shards()
        if there.former is None:
            return True
        for server in sorted(self.servers):
            with self.servers[server].transaction() as held:
                # The map's lock excludes senders. Once no group is left to move, none is added: a sender that
                # finds no message of its group sends to the new shard. So the servers can be checked one
                # after the other.
                if held.admin.run(functions.set_shards(there)) != there.epoch:
                    raise ShardsChangedError(f"the shards of {self.queue} have changed", queue=self.queue)
                if self._any_to_move(there, server, held) or self._any_left(there, server, held):
                    return False
        self._publish(replace(there, epoch=there.epoch + 1, former=None))
        return True

    def drop(self) -> bool:
        """Drop the map and all shards with their messages; return whether there was a map.

        Raises NotPossibleError for a shard that has subscriptions.
        """
        there = self._look()
        if there is None:
            return False
        for shard, server in there.all.items():
            self._server(server).queues.drop(shard)
        for server in sorted(self.servers):
            self.servers[server].admin.run(functions.forget_shards(self.queue))
        self._map = None
        return True

    # Messages.

    def send(
        self,
        body: object,
        *,
        group: str | None = None,
        key: str | int | None = None,
        headers: Headers | None = None,
        delay: Delay | None = None,
        **options: Any,
    ) -> tuple[str, int]:
        """Send a message with a `body`; return its shard and its id there.

        `group` or `key` choose the shard. `headers`, `delay` and the other `options` are those of Client.send, and so
        is what it raises; InvalidArgumentError without what the routing needs.
        """
        [sent] = self.send_batch([body], group=group, key=key, headers=headers, delay=delay, **options)
        return sent

    def send_batch(
        self,
        bodies: Iterable[object],
        *,
        group: str | None = None,
        key: str | int | None = None,
        headers: Headers | None = None,
        delay: Delay | None = None,
        **options: Any,
    ) -> list[tuple[str, int]]:
        """Send `bodies` of one `group` or `key`, all or none; return the shard and the id of each, in order.

        `headers`, `delay` and the other `options` are those of Client.send_batch, for all, and so is what it raises.
        """
        options |= {"group": group, "headers": headers, "delay": delay}
        kept = list(bodies)
        if not kept:
            raise InvalidArgumentError("a batch cannot be empty", queue=self.queue)
        for _ in range(CHANGES_MAX):
            there = self._map or self.shards()
            shard = there.shard_of(group, key, self._turn)
            former = there.former_shard_of(group)
            first = shard if former is None else former
            try:
                with self._server(there.all[first]).transaction() as opened:
                    # While a change moves the group, its senders wait here, so that all see where its messages are.
                    enter = functions.enter_shards(self.queue, there.epoch, former, group)
                    if opened.admin.run(enter) or former is None:
                        return self._send(opened, first, kept, options)
                    if there.all[former] == there.shards[shard]:
                        return self._send(opened, shard, kept, options)
                    # Committed before the lock at the former shard goes.
                    with self._server(there.shards[shard]).transaction() as other:
                        other.admin.run(functions.enter_shards(self.queue, there.epoch))
                        return self._send(other, shard, kept, options)
            except ShardsChangedError:
                # A change may have been interrupted: write the newest map to all servers.
                self._publish(self.shards())
        raise ShardsChangedError(f"the shards of {self.queue} keep changing", queue=self.queue)

    def receive(
        self,
        quantity: int = 1,
        *,
        lease: Seconds | None = None,
        wait: Seconds | None = None,
        shards: Iterable[str] | None = None,
    ) -> list[Message]:
        """Lease up to `quantity` messages from all shards or from some `shards`, beginning with each in turn.

        The lease lasts as long as the policy says, unless `lease` says how many seconds. With a `wait` it waits up to
        this number of seconds for the first message. Raises InvalidArgumentError for a shard that the map lacks.
        """
        deadline = monotonic() + (0.0 if wait is None else duration("wait", wait).total_seconds())
        while True:
            there = (self.shards()).all
            names = list(there) if shards is None else list(shards)
            if not names or not set(names) <= there.keys():
                raise InvalidArgumentError(f"{self.queue} does not have the shards {names}", queue=self.queue)
            first = next(self._next_shard) % len(names)
            taken: list[Message] = []
            for name in names[first:] + names[:first]:
                if len(taken) < quantity:
                    client = self._server(there[name])
                    try:
                        taken += client.receive(name, quantity - len(taken), lease=lease)
                    except SpanmqError:
                        if not taken:
                            raise
                        break  # what was taken is leased; an error that lasts is raised by the next call
            left = deadline - monotonic()
            if taken or left <= 0:
                return taken
            name = names[first]
            if taken := self._server(there[name]).receive(
                name, quantity, lease=lease, wait=min(left, SLICE_SECONDS)
            ):
                return taken

    def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """Settle received `messages` (one or several), a transaction each server; return the outcome for each.

        Raises InvalidArgumentError for a message of another queue.
        """
        settled: list[Settled] = []
        for server, own in (self._by_server(messages)).items():
            settled += self._server(server).ack(own)
        return settled

    def client_of(self, message: Message) -> Client:
        """Return the client of the server that a `message` came from, for all other calls.

        Raises InvalidArgumentError for a message of another queue.
        """
        [server] = self._by_server(message)
        return self._server(server)

    def addresses(self) -> dict[str, str]:
        """Return the DSN of each server by its name, for callers that need their own connections.

        Raises NotPossibleError for a client over a session of other software.
        """
        return {name: client._link.address() for name, client in self.servers.items()}

    # As one.

    def metrics(self) -> QueueMetrics:
        """Add up the counts of all shards; ages are those of the oldest and the newest. Raises QueueNotFoundError."""
        counted = [self._server(server).queues.metrics(name) for name, server in (self.shards()).all.items()]
        return sum_of(self.queue, counted)

    def policy(self) -> Policy:
        """Return the policy of the first shard, which is that of all. Raises QueueNotFoundError."""
        name, server = next(iter((self.shards()).shards.items()))
        return self._server(server).queues.policy(name)

    def set_policy(self, **settings: Unpack[PolicyChange]) -> Policy:
        """Change the `settings` of all shards, one after the other; return the policy. Repeat it if it fails
        half-way.

        Raises InvalidArgumentError for a setting that is unknown or out of range.
        """
        policies = [
            self._server(server).queues.set_policy(name, **settings)
            for name, server in (self.shards()).all.items()
        ]
        return policies[-1]

    # How it is done.

    def _send(
        self, opened: Client, shard: str, bodies: list[object], options: Mapping[str, Any]
    ) -> list[tuple[str, int]]:
        ids = opened.send_batch(shard, bodies, **options)
        return [(shard, message_id) for message_id in ids]

    def _look(self) -> ShardMap | None:
        """Find the newest map of all databases."""
        maps = [client.admin.run(functions.get_shards(self.queue)) for client in self.servers.values()]
        self._map = newest(maps)
        return self._map

    def _publish(self, shard_map: ShardMap) -> None:
        """Write a map to every database, one after the other; each waits for senders that use the former map."""
        for server in sorted(self.servers):
            self.servers[server].admin.run(functions.set_shards(shard_map))
        self._map = None

    def _make(self, shards: Mapping[str, str], policy: PolicyChange) -> None:
        for name, server in shards.items():
            self._server(server).queues.create(name)
            if policy:
                self._server(server).queues.set_policy(name, **policy)

    def _any_to_move(self, there: ShardMap, server: str, held: Client) -> bool:
        if there.routing != "group":
            return False
        for shard in [name for name, place in (there.former or {}).items() if place == server]:
            after: str | None = None
            while groups := held.admin.run(functions.shard_groups(shard, after)):
                if any(heaviest(there.shards, group) != shard for group in groups):
                    return True
                after = groups[-1]
        return False

    def _any_left(self, there: ShardMap, server: str, held: Client) -> bool:
        """Return whether a removed shard has messages: after the change they would not be received."""
        for shard, place in (there.former or {}).items():
            if place == server and shard not in there.shards and (held.queues.metrics(shard)).length:
                return True
        return False

    def _by_server(self, messages: Message | Iterable[Message]) -> dict[str, list[Message]]:
        there = (self._map or self.shards()).all
        servers: dict[str, list[Message]] = {}
        for message in [messages] if isinstance(messages, Message) else messages:
            if message.queue not in there:
                there = (self.shards()).all
            if message.queue not in there:
                raise InvalidArgumentError(
                    f"{message.queue} is not a shard of {self.queue}", queue=self.queue
                )
            servers.setdefault(there[message.queue], []).append(message)
        return servers

    def _placed(self, shards: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
        if isinstance(shards, str) or not shards:
            raise InvalidArgumentError("shards must be names of queues, at least one", queue=self.queue)
        if isinstance(shards, Mapping):
            placed = dict(shards)
        elif len(self.servers) == 1:
            placed = dict.fromkeys(shards, next(iter(self.servers)))
        else:
            raise InvalidArgumentError(
                "pass the server of each shard, because there are several servers", queue=self.queue
            )
        if unknown := set(placed.values()) - self.servers.keys():
            raise InvalidArgumentError(f"unknown servers: {', '.join(sorted(unknown))}", queue=self.queue)
        return placed

    def _server(self, name: str) -> Client:
        if name not in self.servers:
            raise InvalidArgumentError(f"the map names a server {name!r}: pass its client", queue=self.queue)
        return self.servers[name]
