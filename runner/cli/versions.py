"""Version floors, and broken releases, of the programs that hold the sandbox together. Pure; called by `check`.

Distributions mend old versions without raising the number, so a version below its floor is a warning, and only
`check --strict` makes it a failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(-(?:rc|beta|alpha))?")


#: Component -> the first mended release of every series that got one, oldest first, and the problem of older versions.
#: A series older than the first was never mended; one newer than the last always was.
#: Sources: GHSA-9493-h29p-rfm2, GHSA-qw9x-cqr3-wc7r, GHSA-cgrx-mc8f-2prm (runc, November 2025: a container that
#: controls its mounts escapes); GHSA-pwhc-rpq9-4c8w, GHSA-m6hq-p25p-ffr2 (containerd, November 2025);
#: NVIDIA's bulletins of September 2024 to July 2025 (container toolkit: its hooks, run as root, trust the image).
FLOORS: Mapping[str, tuple[tuple[Version, ...], str]] = {
    "runc": (((1, 2, 8), (1, 3, 3)), "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"),
    "containerd": (((1, 7, 29), (2, 0, 7), (2, 1, 5)), "CVE-2024-25621, CVE-2025-64329"),
    "nvidia-container-toolkit": (((1, 17, 8),), "CVE-2024-0132, CVE-2025-23359, CVE-2025-23266, CVE-2025-23267"),
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
    match = _VERSION.search(text)
    if match is None:
        return None
    major, minor, patch = int(match[1]), int(match[2]), int(match[3] or 0)
    return (major, minor, patch - 1) if match[4] and patch > 0 else (major, minor, patch)


def below_floor(component: str, version_text: str) -> str | None:
    """The known problem of this version of a component, in a sentence; None: no problem is known.

    A component without a known fault and a version that is no number are not judged.
    """
    version = parse_version(version_text)
    if version is None:
        return None
    fault = BROKEN.get(component, {}).get(version)
    if fault is not None:
        return f"{component} {version_text}: {fault}"
    mended, advisories = FLOORS.get(component, ((), ""))
    if not mended or _is_mended(version, mended):
        return None
    releases = " or ".join(".".join(map(str, release)) for release in mended)
    return f"{component} {version_text} is older than {releases} ({advisories})"


def _is_mended(version: Version, mended: Sequence[Version]) -> bool:
    for release in mended:
        if version[:2] == release[:2]:
            return version >= release
    return version > mended[-1]
