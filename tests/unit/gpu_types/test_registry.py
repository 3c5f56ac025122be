"""The registry reads, derives, validates and finds GPU types."""

from __future__ import annotations

import dataclasses
from datetime import date
from pathlib import Path

import pytest

from runner.base.errors import ConfigError, NotFoundError
from runner.base.gpu_types import GpuType, Registry, Vendor


def write(directory: Path, **files: str) -> Path:
    """An overlay directory of these files."""
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.toml").write_text(text, encoding="utf-8")
    return directory


def test_every_type_that_boards_name_is_built_in() -> None:
    """KernelBot's GPU names and the CPU type load without an overlay; an alias is another name, a typo gets a hint."""
    registry = Registry.load()
    names = {entry.name for entry in registry.all()}
    assert names >= {"CPU", "T4", "L4", "A100", "H100", "H200", "B200", "L4x4"}
    assert names >= {"NVIDIA", "B200_Nebius", "MI250", "MI300", "MI300x8", "MI355X"}
    assert registry.get("MI300X").name == "MI300"
    with pytest.raises(NotFoundError, match=r"'h100' is not known.*did you mean 'H100'"):
        registry.get("h100")


def test_an_overlay_file_adds_replaces_or_extends_a_type(tmp_path: Path) -> None:
    """A whole new type is one file, and without `extends` nothing of a built-in type is left.

    With its own name it keeps every other key. A derived type adds variables, and does not answer to its base's names.
    """
    overlay = write(
        tmp_path,
        X='name = "X1"\nvendor = "nvidia"\ndevice_names = ["X One"]\nmemory_gib = 2\n',
        H100='name = "H100"\nvendor = "nvidia"\n',
        H200='extends = "H200"\nname = "H200"\nimage = "registry.example/cuda@sha256:0"\n',
        Y='extends = "MI300"\nname = "Y"\nenvironment = { HSA_X = "1" }\n',
    )
    built_in, registry = Registry.load(), Registry.load(overlay)
    assert registry.get("X1").memory_gib == 2.0
    assert len(registry.all()) == len(built_in.all()) + 2
    assert registry.get("H100") == GpuType(name="H100", vendor=Vendor.NVIDIA)
    assert registry.get("H200") == dataclasses.replace(built_in.get("H200"), image="registry.example/cuda@sha256:0")
    assert registry.get("Y").environment == {"PYTORCH_ROCM_ARCH": "gfx942", "HSA_X": "1"}
    assert registry.get("Y").aliases == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "X"\nvendor = "intel"\n', r"x\.toml: vendor: found 'intel', expected: .*'nvidia'"),
        ('name = "X"\nvendor = "none"\nmemory = 3\n', r"x\.toml: key 'memory' is not known.*'memory_gib'"),
        ('name = "X"\nvendor = "none"\nmemory_gib = -1\n', r"x\.toml: memory_gib: found -1"),
        ('name = "X"\nvendor = "nvidia"\nnvcc_arch = "sm_90"\n', r"x\.toml: nvcc_arch: found 'sm_90'"),
        ('name = "X"\nvendor = "none"\ndevice_names = ["("]\n', r"x\.toml: device_names\.0: .*expected: a regular"),
        ('name = "a b"\nvendor = "none"\n', r"x\.toml: name: found 'a b'"),
        ('name = "X"\nvendor = "none"\n[environment]\n"A=B" = "1"\n', r"x\.toml: environment\.A=B"),
        *((f"name = {value}", r"x\.toml: not a TOML file") for value in ("", "9" * 5000, f"{'[' * 5000}{']' * 5000}")),
        (
            'extends = "H100"\nname = "X"\npartition = "1g"\ncount = 2\n',
            r"x\.toml: count: found 2 with partition '1g', expected 1: a CUDA process uses one MIG instance",
        ),
        ('name = "X"\nextends = "H10"\n', r"x\.toml: extends='H10'.*nearest is 'H100'"),
        ('name = "X"\nextends = "X"\n', r"x\.toml: extends='X', expected the name of another"),
        ('name = "X"\nextends = 3\n', r"x\.toml: extends=3, expected the name"),
        ('name = "X"\nvendor = "none"\naliases = ["H100"]\n', r"x\.toml: alias 'H100' of GPU type 'X' already names"),
        ('name = "X"\nvendor = "none"\naliases = ["x"]\n', r"x\.toml: alias 'x'"),
        ('name = "h100"\nvendor = "nvidia"\n', r"differs from .* by case only"),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_found_and_expected(tmp_path: Path, text: str, message: str) -> None:
    """Every mistake names where it is and what would be right."""
    with pytest.raises(ConfigError, match=message):
        Registry.load(write(tmp_path, x=text))


def test_files_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    """Which of two files of one type would win is not left to the alphabet; A extends B extends A has no meaning."""
    text = 'name = "X"\nvendor = "none"\n'
    with pytest.raises(ConfigError, match=r"'X' is described twice: .*a\.toml and .*b\.toml"):
        Registry.load(write(tmp_path, a=text, b=text))
    with pytest.raises(ConfigError, match="circle: A -> B -> A"):
        Registry.load(write(tmp_path, a='name = "A"\nextends = "B"\n', b='name = "B"\nextends = "A"\n'))


def test_only_processor_cores_emulate_cuda(tmp_path: Path) -> None:
    """The operator's key for a type without devices; a type with devices has real ones."""
    overlay = write(tmp_path / "good", CPU='extends = "CPU"\nname = "CPU"\nemulate_cuda = true\n')
    assert Registry.load(overlay).get("CPU").emulate_cuda
    assert not Registry.load().get("CPU").emulate_cuda
    with pytest.raises(ConfigError, match="emulate_cuda: found true with vendor 'nvidia'"):
        Registry.load(write(tmp_path / "bad", H100='extends = "H100"\nname = "H100"\nemulate_cuda = true\n'))


HARDWARE_RUN = """
[[hardware_runs]]
date = 2026-11-23
device = "X 80GB"
driver = "580.1"
what = ["a test", "another"]
"""


def test_a_type_says_what_ran_on_its_devices_and_a_type_derived_from_it_does_not(tmp_path: Path) -> None:
    """What ran on one device did not run on eight; the same type with another image keeps the record."""
    base = 'name = "X"\nvendor = "nvidia"\n'
    overlay = write(
        tmp_path, X=base + HARDWARE_RUN, Xx8='extends = "X"\nname = "Xx8"\n', H100='extends = "H100"\nname = "H100"\n'
    )
    registry = Registry.load(overlay)
    (run,) = registry.get("X").hardware_runs
    assert (run.date, run.device, run.driver, run.software) == (date(2026, 11, 23), "X 80GB", "580.1", "")
    assert run.what == ("a test", "another")
    assert registry.get("X").last_hardware_run == date(2026, 11, 23)
    assert (registry.get("Xx8").hardware_runs, registry.get("Xx8").last_hardware_run) == ((), None)
    assert registry.get("H100").hardware_runs == Registry.load().get("H100").hardware_runs != ()


@pytest.mark.parametrize("line", ['date = "soon"', "what = []", 'driver = ""', 'verdict = "fine"'])
def test_a_record_of_a_run_on_hardware_must_be_complete(tmp_path: Path, line: str) -> None:
    """The day is a day, something ran, the driver is named, and there is no other key."""
    key = line.split(maxsplit=1)[0]
    kept = "\n".join(each for each in HARDWARE_RUN.splitlines() if not each.startswith(f"{key} "))
    overlay = write(tmp_path, X=f'name = "X"\nvendor = "nvidia"\n{kept}\n{line}\n')
    with pytest.raises(ConfigError, match=rf"X\.toml: hardware_runs\.0\.{key}: found"):
        Registry.load(overlay)


def test_an_overlay_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    """A file, a link to nowhere; one that is not there is none."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(ConfigError, match=rf"gpus_dir='{tmp_path}/{name}' cannot be read: "):
            Registry.load(tmp_path / name)
    assert list(Registry.load(tmp_path / "nowhere").all()) == list(Registry.load().all())
