"""Which devices an engine can give by CDI: from its `info`, and from specs as the vendors' toolkits write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox.host.cdi import offered

#: As `nvidia-ctk cdi generate` writes it where nvidia-drm is loaded, without its mounts.
NVIDIA = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-modeset
  - path: /dev/nvidia-uvm
  - path: /dev/nvidia-uvm-tools
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/x86_64-linux-gnu]
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card1
    - path: /dev/dri/renderD128
- name: GPU-8a6c4a0f-5e5c-3b0f-a6f2-3f4d1f1f0c0d
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card1
    - path: /dev/dri/renderD128
"""
COMMON = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl")
ONE = ("/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128", *COMMON)


def _amd(*numbers: int) -> str:
    """As AMD's container toolkit writes it: numbers and `all`, and no edits that all devices share."""

    def device(name: str, *cards: int) -> dict[str, Any]:
        paths = [f"/dev/dri/{kind}" for card in cards for kind in (f"card{card}", f"renderD{128 + card}")]
        nodes = [{"path": path, "type": "c", "permissions": "rwm"} for path in (*paths, "/dev/kfd")]
        return {"name": name, "containerEdits": {"deviceNodes": nodes}}

    devices = [*(device(str(number), number) for number in numbers), device("all", *numbers)]
    return json.dumps({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": devices, "containerEdits": {}})


def _info(*directories: Path, found: tuple[str, ...] = ()) -> dict[str, Any]:
    """What an engine answers to `info`, as far as CDI is concerned."""
    listed = [{"Source": "cdi", "ID": name} for name in found]
    directory_names = [str(path) for path in directories]
    return {"CDISpecDirs": directory_names, **({"DiscoveredDevices": listed} if listed else {})}


def test_an_engine_whose_directories_of_specs_are_empty_offers_no_device(tmp_path: Path) -> None:
    """Docker names them from version 28.2 on, whether or not a spec was ever generated."""
    for version in ("1.47", "1.50", "1.52"):
        assert offered(_info(tmp_path, Path("/nonexistent/cdi")), version) == {}
        assert offered({"CDISpecDirs": None}, version) == {}
        assert offered({}, version) == {}


def test_the_devices_of_an_older_engine_are_those_of_the_specs(tmp_path: Path) -> None:
    """With the nodes of the device, and those that its spec adds for every device."""
    (tmp_path / "nvidia.yaml").write_text(NVIDIA, encoding="utf-8")
    (tmp_path / "amd.json").write_text(_amd(0, 1), encoding="utf-8")
    (tmp_path / "README").write_text("no spec", encoding="utf-8")
    assert offered(_info(tmp_path), "1.44") == {
        "nvidia.com/gpu=0": ONE,
        "nvidia.com/gpu=GPU-8a6c4a0f-5e5c-3b0f-a6f2-3f4d1f1f0c0d": ONE,
        "amd.com/gpu=0": ("/dev/dri/card0", "/dev/dri/renderD128", "/dev/kfd"),
        "amd.com/gpu=1": ("/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"),
        "amd.com/gpu=all": (
            *("/dev/dri/card0", "/dev/dri/renderD128", "/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"),
        ),
    }


def test_a_newer_engine_says_which_devices_it_has_found(tmp_path: Path) -> None:
    """A spec that it has not loaded offers nothing. A device whose spec is not readable here has no nodes."""
    (tmp_path / "nvidia.yaml").write_text(NVIDIA, encoding="utf-8")
    info = _info(tmp_path, found=("nvidia.com/gpu=0", "nvidia.com/gpu=1"))
    info["DiscoveredDevices"].append({"Source": "other", "ID": "nvidia.com/gpu=2"})
    assert offered(info, "1.50") == {"nvidia.com/gpu=0": ONE, "nvidia.com/gpu=1": ()}
    assert offered(_info(tmp_path), "1.50") == {}


def test_a_later_directory_counts_more(tmp_path: Path) -> None:
    """What is generated at boot goes before what an operator wrote once. A spec that is none hides no other."""
    for name, number in (("etc", 0), ("run", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "amd.json").write_text(_amd(number).replace(f'"{number}"', '"0"'), encoding="utf-8")
    for text in ("", "[]", "{", "kind: x", "devices: [{}]", "kind: x\ndevices: 3", "\0"):
        (tmp_path / "etc" / "broken.yaml").write_text(text, encoding="utf-8")
        found = offered(_info(tmp_path / "etc", tmp_path / "run"), "1.47")
        assert sorted(found) == ["amd.com/gpu=0", "amd.com/gpu=all"], text
        assert found["amd.com/gpu=0"] == ("/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd")
