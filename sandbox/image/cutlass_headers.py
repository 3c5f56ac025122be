"""Takes the headers of CUTLASS out of the wheel nvidia-cutlass; runs while `Dockerfile.cuda` is built.

Arguments: the folder with the wheel, and the folder to fill.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

#: Folders in the wheel; their contents lie side by side in the folder that is filled.
SOURCES = ("cutlass_library/source/include/", "cutlass_library/source/tools/util/include/")


def main() -> None:
    """Write the headers.

    Raises:
        SystemExit: the folder does not hold exactly one wheel, or the wheel has no headers.
    """
    wheels, target = sorted(Path(sys.argv[1]).glob("nvidia_cutlass-*.whl")), Path(sys.argv[2])
    if len(wheels) != 1:
        sys.exit(f"found {len(wheels)} wheels of nvidia-cutlass in {sys.argv[1]}, expected one")
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in wheel.namelist():
            source = next((source for source in SOURCES if name.startswith(source)), None)
            if source is None or name.endswith("/"):
                continue
            path = target / name.removeprefix(source)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wheel.read(name))
    if not (target / "cutlass" / "version.h").is_file():
        sys.exit(f"{wheels[0].name} holds no cutlass/version.h below {' or '.join(SOURCES)}")


if __name__ == "__main__":
    main()
