"""SQL files as statements: tokens, checksums, versions."""

from pathlib import Path

import pytest

from spanmq.schema.release import load_release, version_key


def test_version_token_is_replaced_but_no_cast(folder: Path) -> None:
    (folder / "functions/calls.sql").write_text("select :version, x::version, 'a:version', :versions\n")
    release = load_release(folder, version="0.3.0'")
    assert release.functions[0].text == "select '0.3.0''', x::version, 'a:version', :versions\n"


def test_migration_without_since_line_counts_as_new(folder: Path) -> None:
    (folder / "tables/0002_more.sql").write_text("create table spanmq.more (id int);\n")
    release = load_release(folder, version="0.3.0")
    assert [each.since for each in release.migrations] == ["0.1.0", "0.3.0"]


def test_line_ends_do_not_change_checksums(folder: Path) -> None:
    before = load_release(folder)
    for path in folder.rglob("*.sql"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_release(folder) == before


def test_versions_are_ordered_as_packages_are() -> None:
    ordered = ["0.1.dev2", "0.1a1", "0.1b1", "0.1.0rc1", "0.1rc2", "0.1.0", "0.1.1", "0.9", "0.10.0", "1.0"]
    assert sorted(set(ordered), key=version_key) == ordered
    assert version_key("1.0.0") == version_key("1")
    with pytest.raises(ValueError, match="not a version"):
        version_key("one")
