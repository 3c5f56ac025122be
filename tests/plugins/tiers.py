"""`--tier quick` leaves out what tiers.toml leaves to the whole run; `--corpora "a b"` plays those whole even so."""

from __future__ import annotations

import pytest

from tests.tiers import ALL, tiers

_QUICK = "quick"
#: The tests that were there before any was left out.
COLLECTED = pytest.StashKey[tuple[str, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--tier", choices=(_QUICK, ALL), default=ALL, help="quick: one case of each class of a corpus")
    parser.addoption("--corpora", default="", help="names of corpora to play whole, separated by spaces; or all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not of the tier.

    Raises:
        pytest.UsageError: the manifest knows no such corpus.
    """
    config.stash[COLLECTED] = tuple(item.nodeid for item in items if item.get_closest_marker("nightly") is None)
    names = {corpus.name for corpus in tiers().corpora}
    whole = set(config.getoption("corpora").split())
    if not whole <= {*names, ALL}:
        raise pytest.UsageError(f"--corpora: found {sorted(whole - names)}, expected {ALL} or some of {sorted(names)}")
    if config.getoption("tier") != _QUICK or ALL in whole:
        return
    left_out = {item for item in items if _is_left_out(item.nodeid, whole)}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def _is_left_out(nodeid: str, whole: set[str]) -> bool:
    corpus = tiers().corpus_of(nodeid)
    return corpus is not None and corpus.name not in whole and not corpus.is_quick(nodeid)
