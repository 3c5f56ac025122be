"""How a receipt is signed, and the one form of what is. `runner.extras.receipts` checks them."""

from __future__ import annotations

import json
from typing import Final

from runner.base.model import Json, Receipt

FORMAT: Final = "kernel-runner receipt 1"


def canonical(statement: Json) -> str:
    """The one form of a statement: keys in order, no space, ASCII."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Signer:
    """A host's key (Ed25519), of 32 bytes."""

    def __init__(self, private: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(private)
        #: The public key, in hexadecimal.
        self.key = self._private.public_key().public_bytes_raw().hex()

    def sign(self, statement: str) -> Receipt:
        """The receipt of a statement."""
        return Receipt(statement=statement, key=self.key, signature=self._private.sign(statement.encode()).hex())
