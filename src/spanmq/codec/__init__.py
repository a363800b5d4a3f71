"""Conversion of bodies to JSON, one by one and in batches, and their encryption."""

from spanmq.codec.body import Codec, RawJson, ValidJson, plain_json, to_json
from spanmq.codec.encryption import KEYS_VARIABLE, SEALED_KEY, Encryption, Unopened
from spanmq.codec.exact_json import Number, dumps, loads

__all__ = [
    "KEYS_VARIABLE",
    "SEALED_KEY",
    "Codec",
    "Encryption",
    "Number",
    "RawJson",
    "Unopened",
    "ValidJson",
    "dumps",
    "loads",
    "plain_json",
    "to_json",
]
