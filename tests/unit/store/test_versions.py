"""The migrations that this release has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from runner.store import schema

#: SHA-256 of each migration. A new one adds its own; that of a released one never changes.
DIGESTS: Final[Mapping[str, str]] = {
    "0002_validation": "99bb64f6570958cf327b637506aae998b5c00859aa30ac91e0be63dd3adaa647",
    "0003_profile_options": "0fd1e7a94471d77f7e9b9768d7bfcac727a9e03f67ef3d76f503fd85d04897da",
    "0004_one_slot_per_device": "f7e63fc6d1c9831adfdb630e4147a476a38a10e9644ba4e402de61256cb1ec06",
    "0005_finals": "e60eab0ba489940245c69a1a15c451745b77f5e31129b803caa6846c52a9d8ad",
    "0006_receipts": "de13a6b5fd6d03fdc6d8eacaee1aeb312874fd606ce40486e06096f73750de1c",
    "0007_open_code": "d8f27e9ad4263b4b579f006cd7ddb46adc63ee283495aad14b7095993f7b8f69",
    "0008_left_out": "f57422e1ae8d1eee297d304e7251755027daa6271091bb7ef7b251bf0a5a622a",
    "0009_one_condition": "111208b54bd9b170645230b28720d7fda84810f865b2dfe57bd808a0eaea8012",
    "0010_webhooks": "f837e205124910ea256c8ad7d556f6a97060a8f8d2e204f00786c9d0c8f0e8ce",
    "0011_discord": "85a0f17f7e3ae9a7d5cbd8783a95584a1c58180dd752c113d479e110492d1146",
    "0012_quartiles": "3cfe555118ba2bd39e1efd1bd81826980409c3e3f1a326b61e06f6ba36ef1991",
    "0013_no_reuse": "ea636c78113deb2c428eea01024d722bd3331148d6ceef2dd307c858339a152f",
    "0014_early_checks": "ed43fa7ad9105e31d743863c5f88797d6d38c4a461d1e2a4c0ff14668d33c333",
    "0015_one_rule_one_bot": "0469bdc30c52d5bfe066e315580c8cda1120738ada97db13fd71020ce0d6db45",
    "0016_keys": "f0debf089383025244d309379678a9b7d780c8e5d9e52a3cfc499598d3539720",
    "0017_meetings": "77b1551aa7eab7a52101e6ee49e5b4a11cd84709ed38d23888217bd9a350afcf",
    "0018_reasons": "adb2bc74b151258a7fa240e68e49ef7676102d16a265d0c9f14e11490aad34f0",
}


def test_a_released_migration_is_never_changed() -> None:
    """A database that has applied it would lack the change: it takes another migration."""
    texts = schema.migrations()
    assert {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()} == DIGESTS


def test_migrations_are_numbered_in_one_row() -> None:
    """Their names are what a database remembers, and are compared as texts."""
    numbers = [re.fullmatch(r"(\d{4})_\w+", name) for name in schema.versions()]
    assert [int(number[1]) for number in numbers if number] == [*range(1, len(numbers) + 1)]
