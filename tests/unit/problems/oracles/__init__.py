"""An oracle for each task that one process on one device evaluates."""

from __future__ import annotations

from tests.unit.problems.oracles import amd, layers, linalg, mxfp4, nvfp4, plain

ORACLES = {
    **amd.ORACLES,
    **layers.ORACLES,
    **linalg.ORACLES,
    **mxfp4.ORACLES,
    **nvfp4.ORACLES,
    **plain.ORACLES,
}
