r"""The pgbench scripts. Each statement is a transaction of its own, as a client in autocommit sends it.

Batches come in two forms, each the same text around every contestant's call:

- `cycle`: what the queue costs. Bodies are varied and lie in the server as jsonb; whoever takes them reads
  every message (its size) and gets the ids, which go back to the server to settle. Parsing JSON and printing
  it, which costs every queue the same, is left out.
- `client_cycle`: what a client sees. Bodies go to the server as a text parameter (`-M prepared`), and every
  row with its whole message comes over the connection. pgbench keeps only the last row of a result (\aset),
  so the last row carries the ids.

Single messages always take the second form.
"""

from __future__ import annotations

from lab.bench.bodies import batches_of
from lab.bench.contestants import LEASE_SECONDS, QUEUE, Contestant

RELOAD = 32
VARIABLES = {"loaded": "0"}  # what every script expects to be defined (pgbench -D)


def cycle(contestant: Contestant, batch: int) -> str:
    """Send a batch, take as many, settle what was taken: three transactions."""
    return send(batch) + take(contestant, batch)


def client_cycle(contestant: Contestant, batch: int) -> str:
    """As `cycle`, with bodies and whole messages over the connection."""
    return client_send(batch) + _take_many(contestant, batch)


def send(batch: int) -> str:
    """Send one batch of varied bodies."""
    if batch == 1:
        return client_send(1)
    return (
        f"\\set batch_number random(1, {batches_of(batch)})\n"
        f"select count(*) from pgmq.send_batch('{QUEUE}',"
        f" (select parsed from bench.batch where size = {batch} and number = :batch_number));\n"
    )


def client_send(batch: int) -> str:
    """Send one batch of varied bodies as a client does."""
    call = (
        f"select * from pgmq.send('{QUEUE}', :bodies::jsonb);\n"
        if batch == 1
        else f"select * from pgmq.send_batch('{QUEUE}', :bodies::jsonb[]);\n"
    )
    return _load_bodies(batch) + call


def take(contestant: Contestant, quantity: int) -> str:
    """Take up to `quantity` messages and settle them: two transactions, or one if there was nothing."""
    return _take_one(contestant, contestant.receive(1)) if quantity == 1 else _read_many(contestant, quantity)


def take_and_settle_singly(contestant: Contestant, quantity: int) -> str:
    """Take `quantity` messages, which must be there, and settle them one by one."""
    carried = "".join(f", max({column}) as {column}" for column in contestant.carried)
    return (
        f"select min(msg_id) as first{carried} from {contestant.receive(quantity)} \\gset\n"
        "\\set msg_id :first\n" + f"{contestant.settle_one()};\n\\set msg_id :msg_id + 1\n" * quantity
    )


def work(contestant: Contestant, seconds: float) -> str:
    """Take a message, work, and settle it, in one transaction."""
    return f"begin;\n{_take_one(contestant, contestant.receive(1))}select pg_sleep({seconds});\ncommit;\n"


def settle_some(messages: int) -> str:
    """Settle or hide one to four random messages of so many, by a random verb each, in one transaction."""
    calls = ("delete('{}', :id::bigint)", "archive('{}', :id::bigint)", "set_vt('{}', :id::bigint, 600)")
    one = f"\\set id random(1, {messages})\n\\set verb random(1, {len(calls)})\n"
    for number, call in enumerate(calls, start=1):
        one += f"\\if :verb = {number}\nselect pgmq.{call.format(QUEUE)};\n\\endif\n"
    more = "".join(f"\\if :calls > {number}\n{one}\\endif\n" for number in range(1, 4))
    return f"\\set calls random(1, 4)\nbegin;\n{one}{more}commit;\n"


def grouped_cycle(contestant: Contestant, groups: int) -> str:
    """Send one message of a random group, take one in order, settle it."""
    return (
        _load_bodies(1)
        + f"\\set group_number random(1, {groups})\n"
        + f"select * from pgmq.send('{QUEUE}', :bodies::jsonb,"
        + " jsonb_build_object('x-pgmq-group', 'group-' || :group_number::text));\n"
        + _take_one(contestant, f"pgmq.read_grouped_head('{QUEUE}', {LEASE_SECONDS}, 1)")
    )


def _load_bodies(batch: int) -> str:
    return (
        f"\\set batch_number random(1, {batches_of(batch)})\n"
        f"\\set reload random(1, {RELOAD})\n"
        "\\if :loaded = 0 or :reload = 1\n"
        f"select bodies from bench.batch where size = {batch} and number = :batch_number \\gset\n"
        "\\set loaded 1\n"
        "\\endif\n"
    )


def _take_one(contestant: Contestant, call: str) -> str:
    return (
        "\\set msg_id 0\n"  # \aset leaves the variable alone when no row comes
        f"select {', '.join(contestant.columns)} from {call} \\aset\n"
        "\\if :msg_id > 0\n"
        f"{contestant.settle_one()};\n"
        "\\endif\n"
    )


def _read_many(contestant: Contestant, quantity: int) -> str:
    carried = "".join(f", coalesce(max({column}), 0) as {column}" for column in contestant.carried)
    return (
        "select coalesce(array_agg(msg_id)::text, '') as ids, count(*) as taken,"
        " sum(pg_column_size(message)) as size"
        f"{carried} from {contestant.receive(quantity)} \\gset\n"
        "\\if :taken > 0\n"
        f"{contestant.settle_many().replace('select *', 'select count(*)')};\n"
        "\\endif\n"
    )


def _take_many(contestant: Contestant, quantity: int) -> str:
    columns = contestant.columns
    carried = ("ids", "taken")
    last = [f"max({column})" if column in contestant.carried else "null" for column in columns]
    return (
        # An append runs its parts in order, and nothing here is parallel safe: the ids come last.
        f"with taken as materialized (select * from {contestant.receive(quantity)})\n"
        f"select {', '.join(columns)}, null::text as {carried[0]}, 0 as {carried[1]} from taken\n"
        "union all\n"
        f"select {', '.join(last)}, array_agg(msg_id)::text, count(*) from taken \\aset\n"
        "\\if :taken > 0\n"
        f"{contestant.settle_many()};\n"
        "\\endif\n"
    )
