"""Version floors, and broken releases, of the programs that hold the sandbox together. Pure; called by `check`.

Distributions mend old versions without raising the number, so a version below its floor is a warning, and only
`check --strict` makes it a failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(-(?:rc|beta|alpha))?")


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The first mended release of every series that got one."""

    component: str
    #: Oldest first. A series older than the first was never mended; one newer than the last always was.
    mended: tuple[Version, ...]
    #: The problem of older versions.
    advisories: str


#: Sources: GHSA-9493-h29p-rfm2, GHSA-qw9x-cqr3-wc7r, GHSA-cgrx-mc8f-2prm (runc, November 2025: a container that
#: controls its mounts escapes); GHSA-pwhc-rpq9-4c8w, GHSA-m6hq-p25p-ffr2 (containerd, November 2025);
#: NVIDIA's bulletins of September 2024 to July 2025 (container toolkit: its hooks, run as root, trust the image).
FLOORS: Mapping[str, Floor] = {
    floor.component: floor
    for floor in (
        Floor(
            component="runc",
            mended=((1, 2, 8), (1, 3, 3)),
            advisories="CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
        ),
        Floor(
            component="containerd",
            mended=((1, 7, 29), (2, 0, 7), (2, 1, 5)),
            advisories="CVE-2024-25621, CVE-2025-64329",
        ),
        Floor(
            component="nvidia-container-toolkit",
            mended=((1, 17, 8),),
            advisories="CVE-2024-0132, CVE-2025-23359, CVE-2025-23266, CVE-2025-23267",
        ),
    )
}

#: Releases with which some sandboxes do not start: component -> release -> what is wrong with it.
#: Source: NVIDIA/nvidia-container-toolkit#2026, mended by #2028.
BROKEN: Mapping[str, Mapping[Version, str]] = {
    "nvidia-container-toolkit": {
        (1, 20, 0): "its hook writes to /etc/nvidia of the container, which does not start where that is read-only",
    }
}


def parse_version(text: str) -> Version | None:
    """The first version number in a text such as `1.1.5+ds1` or `v2.0.7`; None if there is none.

    A pre-release counts as the release before it: 1.3.3-rc.1 does not have what 1.3.3 mended.
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    major, minor, patch = int(found[1]), int(found[2]), int(found[3] or 0)
    return (major, minor, patch - 1) if found[4] and patch > 0 else (major, minor, patch)


def below_floor(component: str, version_text: str) -> str | None:
    """The known problem of this version of a component, in a sentence; None: no problem is known.

    A component without a known fault and a version that is no number are not judged.
    """
    floor, version = FLOORS.get(component), parse_version(version_text)
    broken = None if version is None else BROKEN.get(component, {}).get(version)
    if broken is not None:
        return f"{component} {version_text}: {broken}"
    if floor is None or version is None or _mended(floor, version):
        return None
    wanted = " or ".join(".".join(map(str, release)) for release in floor.mended)
    return f"{component} {version_text} is older than {wanted} ({floor.advisories})"


def _mended(floor: Floor, version: Version) -> bool:
    for release in floor.mended:
        if version[:2] == release[:2]:
            return version >= release
    return version > floor.mended[-1]
