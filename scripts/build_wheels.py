"""Build the sdist and all wheels on one machine, for `make wheels`.

The compiler is zig, from the PyPI package `ziglang`.  It has the C library of every platform, in the versions that
wheels promise.  All wheels come from the sdist, so the sdist has everything that a build needs.  `check` refuses a
wheel that needs more than its name says.

The environment variable ``REPOSITORY`` is the address of the repository, for links and for the URLs of the project.
Without it, use the files for inspection only, and do not upload them.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from scripts.index_page import make_fit

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
LIBRARY = "pyspark_kafka_group/columns/_native.abi3.so"


class WheelError(Exception):
    """A wheel does not match its name."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that has a wheel.

    Attributes
    ----------
    tag : str
        The platform in the name of the wheel, with the oldest version it promises to run on.
    target : str
        Zig's name of the platform.
    """

    tag: str
    target: str

    def compiler(self) -> dict[str, str]:
        """Return the environment that makes setuptools compile for this platform."""
        cc = f"{shlex.quote(sys.executable)} -m ziglang cc -target {self.target}"
        # Strip symbols, and allow no undefined ones: at run time there is only the system's C library.
        complete = "-s" if "macos" in self.target else "-s -Wl,-z,defs"
        cache = str(ROOT / "build" / "zig")
        return {
            "CC": cc,
            "LDSHARED": f"{cc} -shared {complete}",
            # Drop the user's flags, which are for this machine.
            **dict.fromkeys(("CFLAGS", "CPPFLAGS", "LDFLAGS"), ""),
            "ZIG_GLOBAL_CACHE_DIR": cache,
            "ZIG_LOCAL_CACHE_DIR": cache,
        }


# Older systems than the wheels of pyarrow and confluent-kafka need.  So these wheels install wherever those do.
PLATFORMS = (
    Platform("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17"),
    Platform("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17"),
    Platform("musllinux_1_2_x86_64", "x86_64-linux-musl"),
    Platform("musllinux_1_2_aarch64", "aarch64-linux-musl"),
    Platform("macosx_11_0_x86_64", "x86_64-macos.11.0"),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0"),
)


PURE = "any"
"""The platform in the name of the wheel without the C library."""

_EXTENSION = re.compile(r"^\[\[tool\.setuptools\.ext-modules\]\]\n(?:(?!\[).*\n)*", re.MULTILINE)
_LIMITED_API = re.compile(r"^\[tool\.distutils\.bdist_wheel\]\n(?:(?!\[).*\n)*", re.MULTILINE)


def build_sdist(out: Path, repository: str = "") -> Path:
    """Build the sdist of the work tree into the folder `out`, with links to `repository` unless it is empty."""
    with tempfile.TemporaryDirectory() as folder:
        _build("--sdist", ROOT, Path(folder), {})
        (archive,) = Path(folder).glob("*.tar.gz")
        source = _unpacked(archive, Path(folder, "source"))
        make_fit(source, repository, source.name.rpartition("-")[2])
        _build("--sdist", source, out, {})
    (sdist,) = out.glob("*.tar.gz")
    return sdist


def build_pure_wheel(sdist: Path, out: Path) -> Path:
    """Build the wheel without the C library into the folder `out`, for platforms without another wheel."""
    with tempfile.TemporaryDirectory() as folder:
        source = _unpacked(sdist, Path(folder))
        project = source / "pyproject.toml"
        text = project.read_text(encoding="utf-8")
        for table in (_EXTENSION, _LIMITED_API):
            text, found = table.subn("", text)
            if not found:
                raise WheelError(f"pyproject.toml has no table like {table.pattern}")
        project.write_text(text, encoding="utf-8")
        _build("--wheel", source, out, {})
    (wheel,) = out.glob(f"*-{PURE}.whl")
    return wheel


def _unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    return source


def build_wheel(sdist: Path, platform: Platform, compiler: Mapping[str, str], out: Path) -> Path:
    """Build a wheel into the folder `out`; `compiler` is the environment to compile in."""
    # Use a fresh copy for each wheel: setuptools would reuse the compiled files that it finds in build/.
    with tempfile.TemporaryDirectory() as folder:
        source = _unpacked(sdist, Path(folder))
        plat_name = f"--config-setting=--build-option=--plat-name={platform.tag}"
        output = _build("--wheel", source, out, compiler, plat_name)
    (wheel,) = out.glob(f"*-{platform.tag}.whl")
    # setuptools reports no error, because the package works without the library.
    if LIBRARY not in zipfile.ZipFile(wheel).namelist():
        raise WheelError(f"the C library was not built for {platform.tag}:\n{output}")
    return wheel


def check(wheel: Path) -> str:
    """Return a short text that names what a wheel needs from the system.

    Raises
    ------
    WheelError
        If the C library in it needs more than the name of the wheel says.
    """
    *_, python, abi, tag = wheel.stem.split("-")
    if tag == PURE:
        return _check_pure(wheel, python, abi)
    if (python, abi) != ("cp311", "abi3"):
        raise WheelError(f"{wheel.name} is not for every Python from 3.11 on")
    if tag.startswith("macosx"):
        return _check_mach_o(tag, zipfile.ZipFile(wheel).read(LIBRARY))
    if tag.startswith("musllinux"):
        return _check_musl(tag, zipfile.ZipFile(wheel).read(LIBRARY))
    return _check_elf(wheel, tag)


def _check_pure(wheel: Path, python: str, abi: str) -> str:
    compiled = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    if (python, abi) != ("py3", "none") or compiled:
        raise WheelError(f"{wheel.name} is not for every platform: {', '.join(compiled) or 'its name says so'}")
    return "nothing, and reads more slowly"


def _check_elf(wheel: Path, tag: str) -> str:
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise WheelError(f"{wheel.name}: auditwheel says: {run.stdout}{run.stderr}")
    seen = json.loads(run.stdout)
    needs = ", ".join(f"{library} ({', '.join(names)})" for library, names in seen["versioned_symbols"].items())
    if seen["overall_tag"] != tag:
        raise WheelError(f"{wheel.name}: auditwheel says that it is for {seen['overall_tag']}; it needs {needs}")
    return needs


def _check_musl(tag: str, library: bytes) -> str:
    # Deliberate: not auditwheel.  It looks for musl on this machine, and mistakes libc.so of glibc, a text, for it.
    elf = ELFFile(io.BytesIO(library))
    dynamic = [section for section in elf.iter_sections() if isinstance(section, DynamicSection)]
    tags: list[Any] = [tag for section in dynamic for tag in section.iter_tags("DT_NEEDED")]
    needs = sorted(tag.needed for tag in tags)
    arch = {"x64": "x86_64", "AArch64": "aarch64"}.get(elf.get_machine_arch())
    if needs != ["libc.so"] or not tag.endswith(f"_{arch}"):
        raise WheelError(f"the library for {tag} is for {arch} and needs {', '.join(needs)}")
    return "libc.so of musl"


def _check_mach_o(tag: str, library: bytes) -> str:
    _, major, minor, arch = tag.split("_", 3)
    seen = mach_o(library)
    promised = MachO(arch, (int(major), int(minor)), frozenset({"/usr/lib/libSystem.B.dylib"}), seen.signed)
    # Apple's processors run only signed code.  A signature without a name is enough.
    if seen != promised or (arch == "arm64" and not seen.signed):
        raise WheelError(f"the library for {tag} is {seen}")
    return f"{', '.join(seen.libraries)}, macOS {major}.{minor}{', signed' if seen.signed else ''}"


@dataclass(frozen=True, slots=True)
class MachO:
    """A library for macOS: its processor, the oldest system that it is for, the libraries it needs, and a signature."""

    arch: str
    oldest: tuple[int, int]
    libraries: frozenset[str]
    signed: bool


def mach_o(library: bytes) -> MachO:
    """Read the load commands of a library for macOS (``mach-o/loader.h``)."""
    magic, processor, _, _, commands = struct.unpack_from("<5I", library)
    if magic != 0xFEEDFACF:
        raise WheelError("this is no library for macOS of 64 bits")
    arch = {0x0100_0007: "x86_64", 0x0100_000C: "arm64"}.get(processor, hex(processor))
    oldest, libraries, signed = (0, 0), set(), False
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", library, at)
        match command & 0x7FFF_FFFF:
            case 0x0C | 0x18 | 0x1F | 0x20 | 0x23:  # LC_LOAD_DYLIB, also weak, re-exported, lazy and upward
                (name_at,) = struct.unpack_from("<I", library, at + 8)
                libraries.add(library[at + name_at : at + size].partition(b"\0")[0].decode())
            case 0x32:  # LC_BUILD_VERSION
                (version,) = struct.unpack_from("<I", library, at + 12)
                oldest = version >> 16, version >> 8 & 0xFF
            case 0x24:  # LC_VERSION_MIN_MACOSX, the predecessor of LC_BUILD_VERSION
                (version,) = struct.unpack_from("<I", library, at + 8)
                oldest = version >> 16, version >> 8 & 0xFF
            case 0x1D:  # LC_CODE_SIGNATURE
                signed = True
        at += size
    return MachO(arch, oldest, frozenset(libraries), signed)


def _build(kind: str, source: Path, out: Path, environment: Mapping[str, str], *options: str) -> str:
    # No isolation: it would download setuptools, which the dev extra already installs.
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out), *options, str(source)]
    run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise WheelError(run.stdout + run.stderr)
    return run.stdout + run.stderr


def main() -> None:
    """Empty dist/, build the sdist and all wheels into it, and check them."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    repository = os.environ.get("REPOSITORY", "")
    sdist = build_sdist(DIST, repository)
    print(sdist.name)
    wheels = [build_wheel(sdist, platform, platform.compiler(), DIST) for platform in PLATFORMS]
    for wheel in [*wheels, build_pure_wheel(sdist, DIST)]:
        print(f"{wheel.name}: needs {check(wheel)}")
    if not repository:
        print("Not for an upload: the README has no links to the docs, and there are no project URLs. Set REPOSITORY.")


if __name__ == "__main__":
    try:
        main()
    except WheelError as problem:
        sys.exit(str(problem))
