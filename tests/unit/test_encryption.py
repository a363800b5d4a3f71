"""Keys and sealed bodies by themselves: how long a data key serves, what does not open, files of keys."""

import json
from pathlib import Path

import pytest

from spanmq.codec import encryption as sealing
from spanmq.codec.body import Codec, RawJson
from spanmq.codec.encryption import (
    KEYS_VARIABLE,
    ONLY_SEALED_VARIABLE,
    TRUSTED_VARIABLE,
    Encryption,
    Unopened,
    envelope_of,
)
from spanmq.errors import DecryptionError, EncryptionError, InvalidBodyError

OLD = b"o" * 32


def test_data_key_is_used_for_so_many_bodies_and_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def data_key(sealed: str) -> str:
        return str(json.loads(sealed)["spanmq.sealed"]["data_key"])

    monkeypatch.setattr(sealing, "DATA_KEY_BODIES", 2)
    keys = Encryption({"old": OLD})
    made = [data_key(keys.seal("1", "orders")) for _ in range(3)]
    assert made[0] == made[1] != made[2]
    monkeypatch.setattr(sealing, "DATA_KEY_SECONDS", -1.0)
    keys = Encryption({"old": OLD})
    assert data_key(keys.seal("1", "orders")) != data_key(keys.seal("1", "orders"))


@pytest.mark.parametrize("part", ["key", "data_key", "for", "nonce", "text"])
def test_what_was_changed_does_not_open(part: str) -> None:
    keys = Encryption({"old": OLD, "new": OLD}, trusted=("*",))
    sealed = json.loads(keys.seal('"x"', "orders"))
    envelope = sealed["spanmq.sealed"]
    first = envelope[part][0]
    envelope[part] = {"key": "old", "for": "others"}.get(
        part, ("B" if first != "B" else "C") + envelope[part][1:]
    )
    opened = keys.open(json.dumps(sealed).encode(), "orders")
    assert isinstance(opened, Unopened)
    assert isinstance(opened.error, DecryptionError)


def test_what_looks_like_a_sealed_body_is_one_only_if_it_is_whole() -> None:
    for text in (
        '{"spanmq.sealed": 1}',
        '{"spanmq.sealed": {"key": "a"}}',
        '"spanmq.sealed"',
        '{"spanmq.sealed',
    ):
        assert envelope_of(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        "old AAAA",
        f"old {'A' * 43}= more",
        f"{'A' * 43}=",
        f"a/b {'A' * 43}=",
        f"old {'B' * 43}=\nold {'B' * 43}=",
        "",
    ],
)
def test_bad_file_of_keys_is_refused_without_a_word_of_a_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(EncryptionError) as raised:
        Encryption.from_file(path)
    assert "AAAA" not in str(raised.value)
    assert "BBBB" not in str(raised.value)


def test_keys_are_in_no_text_of_it() -> None:
    keys = Encryption({"old": OLD})
    assert "oooo" not in f"{keys!r} {keys}"


def test_fingerprint_depends_on_the_first_key_and_the_queue() -> None:
    first = Encryption({"old": OLD}).fingerprint("4711", "orders")
    assert first == Encryption({"old": OLD, "new": b"n" * 32}).fingerprint("4711", "Orders")
    others = {Encryption({"old": b"n" * 32}).fingerprint("4711", "orders")}
    others |= {Encryption({"old": OLD}).fingerprint(*each) for each in (("4711", "mail"), ("4712", "orders"))}
    assert len(others - {first}) == 3


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ((), False)),
        ({TRUSTED_VARIABLE: "a, topic b.*", ONLY_SEALED_VARIABLE: "true"}, (("a", "topic b.*"), True)),
        ({ONLY_SEALED_VARIABLE: "yes"}, None),
        ({KEYS_VARIABLE: "", ONLY_SEALED_VARIABLE: "1"}, None),
        ({KEYS_VARIABLE: "", ONLY_SEALED_VARIABLE: "0"}, "no keys"),
    ],
    ids=["defaults", "both", "no boolean", "only sealed without keys", "no keys"],
)
def test_options_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: object
) -> None:
    for variable, value in ({KEYS_VARIABLE: f"old {'A' * 43}="} | environment).items():
        monkeypatch.setenv(variable, value)
    if expected is None:
        with pytest.raises(EncryptionError):
            Encryption.from_environment()
        return
    keys = Encryption.from_environment()
    assert ("no keys" if keys is None else (keys.trusted, keys.only_sealed)) == expected


@pytest.mark.parametrize("text", ["NaN", "{", '"a', '"\\ud800"', "[" * 100_000])
def test_json_that_postgresql_does_not_see_is_checked_before_it_is_sealed(text: str) -> None:
    for codec, body in (
        (Codec(encryption=Encryption({"a": bytes(32)}), place="orders"), RawJson(text)),
        (Codec(encryption=Encryption({"a": bytes(32)}), place="orders", encoder=lambda _: text), {}),
    ):
        with pytest.raises(InvalidBodyError, match="not valid JSON"):
            codec.encode(body)
