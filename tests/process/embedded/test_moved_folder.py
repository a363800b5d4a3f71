"""A folder that is moved or deleted while its server runs: that ends with its last user all the same."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.cli.program import ask, do
from tests.patience import WAIT_SECONDS
from tests.process.embedded.processes import Holder, delete, is_stopped

from spanmq import embedded
from spanmq.embedded import supervisor
from spanmq.embedded.folder import ServerFolder
from spanmq.errors import EmbeddedError

needs_proc = pytest.mark.skipif(not supervisor.HAS_PROC, reason="looks at the folders of processes")


def moved(folder: Path) -> Path:
    return folder.rename(folder.with_name("moved"))


@needs_proc
def test_moved_server_stops_with_its_last_user_and_keeps_the_data(folder: Path) -> None:
    tag = ServerFolder(folder).tag
    with embedded.start(folder) as server:
        do(server.dsn, "create table kept as select 42 as answer")
        place = moved(folder)
    assert supervisor.processes_of(tag) == []
    with embedded.start(place) as server:
        assert ask(server.dsn, "select answer from kept") == 42


@needs_proc
@pytest.mark.parametrize("lose", [moved, delete])
def test_lost_server_stops_with_its_killed_user(folder: Path, lose: Callable[[Path], object]) -> None:
    tag = ServerFolder(folder).tag
    holder = Holder(folder)
    lose(folder)
    holder.kill()
    assert supervisor.wait_until(lambda: supervisor.processes_of(tag) == [], WAIT_SECONDS)


@needs_proc
def test_server_that_stands_where_another_was_is_left_alone(folder: Path) -> None:
    first = embedded.start(folder)
    place = moved(folder)
    with embedded.start(folder) as second:
        first.close()
        assert ask(second.dsn, "select 1") == 1
    assert is_stopped(folder)
    assert is_stopped(place)


@needs_proc
def test_folder_that_was_moved_under_its_users_says_so(folder: Path) -> None:
    with embedded.start(folder) as server, psycopg.connect(server.dsn) as connection:
        place = moved(folder)
        with pytest.raises(EmbeddedError, match="another name"):
            embedded.start(place)
        assert connection.execute("select 1").fetchone() == (1,)
    embedded.start(place).close()
