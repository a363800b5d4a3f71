"""On a terminal: tables that fit it, questions, progress, and what is live."""

import re
from pathlib import Path

import pytest
from tests.cli.program import ask, do, on_terminal
from tests.sql.queue import breaker_report


def test_table_on_a_terminal_fits_it(orders: str) -> None:
    do(orders, """select pgmq.send('orders', to_jsonb(repeat('[red]', 100) || e'\\u00fc'))""")
    shown = on_terminal("message peek", "orders", dsn=orders).out
    assert "[red][red]" in shown
    assert "…" in shown
    assert max(map(len, shown.splitlines())) <= 300


def test_traceback_on_a_terminal_is_wrapped(orders: str) -> None:
    do(
        orders,
        "select pgmq.send('orders', '1'); select spanmq.nack('orders', lease_id, array[msg_id], 'boom',"
        " traceback => e'Traceback\\n  ' || repeat('x', 90) || 'end') from spanmq.receive('orders')",
    )
    for width in (60, 300):
        shown = on_terminal("message failures", "orders", 1, dsn=orders, columns=width).out
        assert re.sub(r"\s", "", shown).count("x" * 90 + "end") == 1, shown
        assert max(map(len, shown.splitlines())) <= width


def test_text_of_others_does_not_control_the_terminal(orders: str) -> None:
    do(
        orders,
        "select pgmq.send('orders', '1'); select spanmq.nack('orders', lease_id, array[msg_id],"
        " e'\\x1b]0;title\\x07\\u009b2J') from spanmq.receive('orders')",
    )
    shown = on_terminal("message failures", "orders", 1, dsn=orders).out
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert "\\x1b]0;title\\x07\\x9b2J" in shown


def test_what_destroys_asks_on_a_terminal(orders: str) -> None:
    no = on_terminal("queue drop", "orders", typed="\n", dsn=orders)
    assert (no.code, "spanmq: nothing was changed" in no.out) == (1, True)
    interrupted = on_terminal("queue purge", "orders", typed="\x03", dsn=orders)
    assert (interrupted.code, "spanmq: interrupted" in interrupted.out) == (130, True)
    assert ask(orders, "select count(*) from pgmq.list_queues()") == 1
    yes = on_terminal("queue drop", "orders", typed="y\n", dsn=orders)
    assert (yes.code, "dropped queue orders" in yes.out) == (0, True)
    assert ask(orders, "select count(*) from pgmq.list_queues()") == 0


def test_long_sends_show_their_progress_on_a_terminal(orders: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(3000))
    shown = on_terminal("send", "orders", stdin=lines, dsn=orders).out
    assert re.search(r"sending .*[123],000 messages", shown)
    assert "sent 3,000 messages to orders" in shown


def test_top_is_a_live_table_on_a_terminal(orders: str) -> None:
    do(orders, "select pgmq.send('orders', '1'), spanmq.pause('orders')")
    done = on_terminal("top", "--every", "0.1", "--times", 2, dsn=orders)
    assert done.code == 0
    assert "orders (paused)" in done.out
    assert "oldest snapshot" in done.out


def test_panel_is_drawn_on_a_terminal(database: str, tmp_path: Path) -> None:
    log = str(tmp_path / "a.log")
    load = "-fill-db 300 -workers 3 --work fixed:3"
    done = on_terminal("simulate", "-logfile", log, *load.split(), dsn=database)
    assert done.code == 0, done.out
    for row in ("spanmq: handling", "waiting", "of 3 busy", "idle polls", "delivered again"):
        assert row in done.out, done.out
    # The panel goes away, the table stays.
    assert "300 of 300 in" in done.out.rpartition("of 3 busy")[2]


@pytest.mark.parametrize("columns", [100, 80, 60])
def test_list_on_a_narrow_terminal_is_a_table_without_some_columns(orders: str, columns: int) -> None:
    do(orders, "select pgmq.create('invoices'), pgmq.create('mail')", "select pgmq.send('orders', '1')")
    for words in ("queue list", "queue health", "queue workers", "message peek orders"):
        done = on_terminal(*words.rsplit(" ", words.count(" ") - 1), dsn=orders, columns=columns)
        lines = done.out.splitlines()
        assert max(map(len, lines)) <= columns, done.out
        # A line for each queue, a head of some lines, and what is left out.
        assert len(lines) <= 3 + 10, done.out
    listed = on_terminal("queue list", dsn=orders, columns=columns).out
    assert "dead letters" in listed.replace("\n", " ") or "dead" in listed
    assert "not shown: " in listed
    assert "created at" in listed.partition("not shown: ")[2]
    assert "not shown" not in on_terminal("queue list", dsn=orders).out
    assert re.search(r"\b1\b", on_terminal("message peek", "orders", dsn=orders, columns=columns).out)


@pytest.mark.parametrize("columns", [120, 80, 40])
def test_top_cuts_no_number_on_a_narrow_terminal(orders: str, columns: int) -> None:
    do(
        orders,
        "select pgmq.create('a_queue_with_a_rather_long_name')",
        "select pgmq.send_batch('orders', array_fill('1'::jsonb, array[1234]))",
        "select spanmq.set_policy('orders', '{\"max_attempts\": 1}')",
        "select spanmq.reject('orders', lease_id, array[msg_id], 'no') from spanmq.receive('orders', 134)",
    )
    shown = on_terminal("top", "--every", "0.1", "--times", 1, dsn=orders, columns=columns).out
    assert max(map(len, shown.splitlines())) <= columns, shown
    for number in ("134", "1,100"):
        assert number in shown, shown
    row = next(line for line in shown.splitlines() if line.startswith("orders"))
    assert not re.search(r"\d…", row), shown


def test_sentences_wrap_instead_of_being_cut(orders: str) -> None:
    do(
        orders,
        breaker_report("orders", worker="worker-7", error="connection refused by the bank of the north"),
    )
    shown = on_terminal("queue attention", dsn=orders, columns=80).out
    assert "…" not in shown
    assert {"connection", "bank", "north;", "again"} <= set(shown.split())
