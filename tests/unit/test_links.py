"""Pages outside of the site, whose links its build does not check: each leads to a file, and to a heading of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md"), *ROOT.glob("[a-z]*/CHANGELOG.md")])
CHANGELOGS = [page for page in PAGES if page.name == "CHANGELOG.md"]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def read(path: Path) -> str:
    return BLOCK.sub("", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", read(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def leads_nowhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return not target.exists() or (bool(anchor) and anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", read(page))
    assert [link for link in links if leads_nowhere(page, link)] == []


def test_pages_that_a_readme_names_exist() -> None:
    """The README of a distribution has no links to them: it is read elsewhere, too."""
    for readme in ROOT.glob("[a-z]*/README.md"):
        names = re.findall(r"`(\w+/[\w-]+\.md)`", readme.read_text("utf-8"))
        assert len(names) > 2
        assert [name for name in names if not (ROOT / "docs" / name).exists()] == []


def test_pages_have_links() -> None:
    assert len(PAGES) >= 4
    assert len(re.findall(r"\]\(docs/", "".join(map(read, PAGES)))) > 20


def test_changelog_says_each_thing_once() -> None:
    """A line is repeated when two branches change it: then both versions of it begin alike."""
    for page in CHANGELOGS:
        for section in re.split(r"^##+ ", read(page), flags=re.MULTILINE):
            lines = re.findall(r"^- (.+)$", section, re.MULTILINE)
            beginnings = [" ".join(re.findall(r"\w+", line)[:4]) for line in lines]
            assert sorted({each for each in beginnings if beginnings.count(each) > 1}) == []


def test_changelogs_of_all_distributions_begin_with_the_same_version() -> None:
    versions = [re.findall(r"^## (.+)$", read(page), re.MULTILINE)[0] for page in CHANGELOGS]
    assert len(versions) == 4
    assert len(set(versions)) == 1
