"""README.md and the tutorial: a reader who follows them from an empty folder sees what they show."""

import re
from pathlib import Path

import pytest
from tests.process.embedded.processes import parent_folder
from tests.reader import ROOT, follow

README = ROOT / "README.md"


@pytest.mark.parametrize(("page", "at_least"), [("README.md", 8), ("docs/start/tutorial.md", 11)])
def test_page_can_be_followed(tmp_path: Path, page: str, at_least: int) -> None:
    with parent_folder() as folder:
        more = {"SPANMQ_EMBEDDED_FOLDER": str(folder / "postgres"), "HOME": str(tmp_path)}
        assert follow(ROOT / page, tmp_path, more) >= at_least


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 150
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target
