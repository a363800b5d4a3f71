"""Signatures of Standard Webhooks 1.0.0: HMAC-SHA256 (v1) and Ed25519 (v1a). No I/O here."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError

HMAC_PREFIX: Final = "whsec_"
ED25519_PREFIX: Final = "whsk_"
# The specification's least; of an Ed25519 key the first 32 bytes are its seed, the others follow from it.
HMAC_BYTES_MIN: Final = 24
SEED_BYTES: Final = 32
ED25519_BYTES: Final = (SEED_BYTES, 64)

Signer = Callable[[bytes], str]


def signer(secret: str) -> Signer:
    """Return the function that signs bytes with a secret, as the specification writes secrets.

    `whsec_…` is the Base64 of an HMAC key of at least 24 bytes, `whsk_…` that of a private key of Ed25519. Raises
    InvalidArgumentError for another text, which it does not quote, and ExtraNotInstalledError for a `whsk_…` without
    the package cryptography.
    """
    if secret.startswith(HMAC_PREFIX):
        key = _decoded(secret.removeprefix(HMAC_PREFIX))
        if len(key) < HMAC_BYTES_MIN:
            raise InvalidArgumentError(
                f"the secret of a webhook must have at least {HMAC_BYTES_MIN} bytes, got {len(key)}",
                hint="whsec_$(openssl rand -base64 32)",
            )
        return lambda content: f"v1,{_text(hmac.digest(key, content, hashlib.sha256))}"
    if secret.startswith(ED25519_PREFIX):
        key = _decoded(secret.removeprefix(ED25519_PREFIX))
        if len(key) not in ED25519_BYTES:
            raise InvalidArgumentError(f"a key of Ed25519 must have 32 or 64 bytes, got {len(key)}")
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ModuleNotFoundError as error:
            raise ExtraNotInstalledError(
                "signatures by Ed25519 need the package cryptography", extra="encryption"
            ) from error
        private = Ed25519PrivateKey.from_private_bytes(key[:SEED_BYTES])
        return lambda content: f"v1a,{_text(private.sign(content))}"
    # Without the text, which may be a secret.
    raise InvalidArgumentError(
        "the secret of a webhook begins with whsec_ (HMAC) or whsk_ (a private key of Ed25519)",
        hint="A new one: whsec_$(openssl rand -base64 32)",
    )


def _decoded(text: str) -> bytes:
    try:
        # The padding may be left out, as the libraries of the specification allow.
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(
            "the secret of a webhook is not Base64 after its prefix, whsec_ or whsk_"
        ) from None


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
