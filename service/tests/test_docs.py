"""docs/guides/service.md: its commands do what they show, and it names every code and setting."""

import os
import re
from pathlib import Path

from service.tests.running import service, token
from tests.documented import DOCS, check_sessions

import spanmq_service

PAGE = (DOCS / "guides/service.md").read_text("utf-8")
SOURCES = Path(str(spanmq_service.__file__)).parent


def test_commands_of_the_page_print_what_it_shows(database: str, tmp_path: Path) -> None:
    secret = token(database, "docs")
    with service(database, tmp_path, tokens=True) as running:
        more = {"SERVICE": running.address, "TOKEN": secret, "no_proxy": "*"}
        check_sessions("guides/service", {**os.environ, **more}, tmp_path)


def test_every_code_of_the_service_is_on_the_page() -> None:
    codes = {
        code
        for path in SOURCES.rglob("*.py")
        for code in re.findall(r'(?:Refusal\(\s*\d+, |body_of\(|\d+: )"([a-z_]+)"', path.read_text("utf-8"))
    }
    assert len(codes) > 10
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
