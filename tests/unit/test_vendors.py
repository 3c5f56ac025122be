"""Every table that is asked by a device's vendor knows all vendors that have devices."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import pytest

from runner.cli import engines, image_check
from runner.devices import listing
from runner.evaluation import container_spec
from runner.gpu_types import model
from runner.gpu_types.model import Vendor

TABLES: Final[dict[str, Container[Vendor]]] = {
    "runner/gpu_types/model.py: CLOCK_REASONS": model.CLOCK_REASONS,
    "runner/devices/listing.py: OPENERS": listing.OPENERS,
    "runner/evaluation/container_spec.py: _CDI_KINDS": container_spec._CDI_KINDS,
    "runner/cli/engines.py: _NODES": engines._NODES,
    "runner/cli/image_check.py: _COMPILERS": image_check._COMPILERS,
}


@pytest.mark.parametrize("where", TABLES)
def test_every_vendor_with_devices_is_there(where: str) -> None:
    """A vendor that is added to the enumeration alone fails here, not with a KeyError on a host."""
    assert [vendor for vendor in Vendor if vendor is not Vendor.NONE and vendor not in TABLES[where]] == []
