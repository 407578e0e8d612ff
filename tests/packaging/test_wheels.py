"""`make wheels` builds wheels from the sdist, with the C library, and refuses those that need more than they declare.

`make wheels` itself builds the wheels of all platforms with zig.  These tests build the one for this machine, with its
compiler, and also with zig if it is installed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyspark_kafka_group.columns.record_batches import BATCHES
from scripts import try_wheel
from scripts.build_wheels import (
    LIBRARY,
    PLATFORMS,
    Platform,
    WheelError,
    build_pure_wheel,
    build_sdist,
    build_wheel,
    check,
)
from tests.connector.reading.clients import need_native_library
from tests.missing_tools import skip_without

SYSTEM = "/usr/lib/libSystem.B.dylib"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def here() -> Platform:
    if sys.platform != "linux":
        pytest.skip("auditwheel judges on Linux only")
    (found,) = [p for p in PLATFORMS if p.tag.startswith("manylinux") and p.tag.endswith(f"_{platform.machine()}")]
    return found


def test_the_platforms_are_those_that_the_guides_promise() -> None:
    assert {p.tag for p in PLATFORMS} == {
        "manylinux_2_17_x86_64",
        "manylinux_2_17_aarch64",
        "musllinux_1_2_x86_64",
        "musllinux_1_2_aarch64",
        "macosx_11_0_x86_64",
        "macosx_11_0_arm64",
    }


def test_the_wheel_for_anything_else_has_no_library(sdist: Path, tmp_path: Path) -> None:
    wheel = build_pure_wheel(sdist, tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert check(wheel) == "nothing, and reads more slowly"
    names = zipfile.ZipFile(wheel).namelist()
    assert "pyspark_kafka_group/reading/direct_client.py" in names
    assert [name for name in names if name.endswith((".so", ".c", ".h"))] == []


def test_a_library_in_a_wheel_for_anything_else_is_refused(tmp_path: Path) -> None:
    path = wheel_of(tmp_path, "any", b"\x7fELF")
    pure = path.rename(tmp_path / "pyspark_kafka_group-1-py3-none-any.whl")
    with pytest.raises(WheelError, match="not for every platform: pyspark_kafka_group/columns/_native"):
        check(pure)
    named = tmp_path / "pyspark_kafka_group-1-cp311-abi3-any.whl"
    zipfile.ZipFile(named, "w").close()
    with pytest.raises(WheelError, match="its name says so"):
        check(named)


def test_the_files_for_an_upload_have_absolute_links_and_urls(tmp_path: Path) -> None:
    sdist = build_sdist(tmp_path, "https://git.example/team/kafka-group")
    with tarfile.open(sdist) as archive:
        (name,) = (n for n in archive.getnames() if n.count("/") == 1 and n.endswith("/PKG-INFO"))
        file = archive.extractfile(name)
        assert file is not None
        text = file.read().decode()
    assert "Project-URL: Source, https://git.example/team/kafka-group\n" in text
    assert "](docs/" not in text
    assert "/raw/v" in text


@pytest.mark.parametrize("compiler", ["cc", "ziglang"])
def test_a_wheel_for_this_machine_holds_a_library_that_works(
    compiler: str, sdist: Path, here: Platform, tmp_path: Path
) -> None:
    environment: Mapping[str, str] = {}
    if compiler == "ziglang":
        if importlib.util.find_spec("ziglang") is None:
            skip_without("ziglang", "no zig, which `make wheels` installs: no wheels for other platforms")
        environment = here.compiler()
    elif shutil.which("cc") is None:
        skip_without("compiler", "no C compiler")
    wheel = build_wheel(sdist, here, environment, tmp_path)
    assert wheel.name.endswith(f"-cp311-abi3-{here.tag}.whl")
    assert check(wheel).startswith("libc.so.6 (GLIBC_2.")
    path = zipfile.ZipFile(wheel).extract(LIBRARY, tmp_path)
    library = BATCHES.of(ctypes.CDLL(path))
    assert isinstance(library, ctypes.CDLL)
    assert library.kc_crc(0, b"123456789", 9, False) == 0xE3069283
    if platform.machine() == "x86_64":
        assert library.kc_in_hardware() == ("sse4_2" in Path("/proc/cpuinfo").read_text(encoding="utf-8"))


def test_a_wheel_without_the_library_is_refused_with_what_the_compiler_says(
    sdist: Path, here: Platform, tmp_path: Path
) -> None:
    with pytest.raises(WheelError, match=r"(?s)was not built for manylinux.*/no/compiler/here"):
        build_wheel(sdist, here, {"CC": "/no/compiler/here"}, tmp_path)


def test_a_library_for_linux_that_needs_a_newer_system_is_refused(here: Platform, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        skip_without("compiler", "no C compiler")
    source, library = tmp_path / "newer.c", tmp_path / "newer.so"
    source.write_text("int getrandom(void *, unsigned long, unsigned); int f(void *p) { return getrandom(p, 1, 0); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    with pytest.raises(WheelError, match=r"GLIBC_2\.25"):
        check(wheel_of(tmp_path, here.tag, library.read_bytes()))


def test_a_library_for_musl_that_needs_another_library_is_refused(here: Platform, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        skip_without("compiler", "no C compiler")
    source, library = tmp_path / "empty.c", tmp_path / "empty.so"
    source.write_text("int f(void) { return 1; }\n")
    needs = ["-nostdlib", "-Wl,--no-as-needed", "-lm"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), *needs], check=True, timeout=60)
    tag = here.tag.replace("manylinux_2_17", "musllinux_1_2")
    with pytest.raises(WheelError, match=r"needs .*libm\.so"):
        check(wheel_of(tmp_path, tag, library.read_bytes()))


def test_a_library_for_musl_is_checked(here: Platform, sdist: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("ziglang") is None:
        skip_without("ziglang", "no zig, which `make wheels` installs: no wheels for other platforms")
    (platform_,) = (p for p in PLATFORMS if p.tag == here.tag.replace("manylinux_2_17", "musllinux_1_2"))
    wheel = build_wheel(sdist, platform_, platform_.compiler(), tmp_path)
    assert check(wheel) == "libc.so of musl"
    other = "aarch64" if platform_.tag.endswith("x86_64") else "x86_64"
    with pytest.raises(WheelError, match=f"the library for musllinux_1_2_{other} is for"):
        check(wheel_of(tmp_path, f"musllinux_1_2_{other}", zipfile.ZipFile(wheel).read(LIBRARY)))


# ---------------------------------------------------------------------------------- macOS, which no test machine has


def test_a_library_for_macos_that_needs_only_the_system_is_fine(tmp_path: Path) -> None:
    assert check(wheel_of(tmp_path, "macosx_11_0_arm64", mach_o())) == f"{SYSTEM}, macOS 11.0, signed"
    intel = mach_o(processor=0x0100_0007, signed=False)
    assert check(wheel_of(tmp_path, "macosx_11_0_x86_64", intel)) == f"{SYSTEM}, macOS 11.0"


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ({"oldest": (12, 0)}, r"oldest=\(12, 0\)"),
        ({"needs": (SYSTEM, "/opt/local/lib/libz.1.dylib")}, "libz"),
        ({"processor": 0x0100_0007}, "arch='x86_64'"),
        ({"signed": False}, "signed=False"),
    ],
    ids=["newer system", "another library", "another processor", "no signature"],
)
def test_a_library_for_macos_that_needs_more_is_refused(library: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=why):
        check(wheel_of(tmp_path, "macosx_11_0_arm64", mach_o(**library)))  # type: ignore[arg-type]  # of one each


def test_a_library_of_another_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no library for macOS"):
        check(wheel_of(tmp_path, "macosx_11_0_arm64", b"\x7fELF" + bytes(60)))


def mach_o(
    *,
    processor: int = 0x0100_000C,
    oldest: tuple[int, int] = (11, 0),
    needs: tuple[str, ...] = (SYSTEM,),
    signed: bool = True,
) -> bytes:
    """Return the header of a library for macOS."""
    commands = [struct.pack("<6I", 0x32, 24, 1, oldest[0] << 16 | oldest[1] << 8, 0, 0)]
    for name in needs:
        text = name.encode().ljust(len(name) // 8 * 8 + 8, b"\0")
        commands.append(struct.pack("<6I", 0x0C, 24 + len(text), 24, 0, 0, 0) + text)
    if signed:
        commands.append(struct.pack("<4I", 0x1D, 16, 0, 0))
    body = b"".join(commands)
    return struct.pack("<8I", 0xFEEDFACF, processor, 0, 6, len(commands), len(body), 0, 0) + body


def wheel_of(folder: Path, tag: str, library: bytes) -> Path:
    """Write a wheel that contains little more than this library."""
    path = folder / f"pyspark_kafka_group-1-cp311-abi3-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(LIBRARY, library)
        info = "pyspark_kafka_group-1.dist-info"
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-abi3-{tag}\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pyspark-kafka-group\nVersion: 1\n")
        archive.writestr(f"{info}/RECORD", f"{LIBRARY},,\n")
    return path


# ---------------------------------------------------------------------------------- trying a wheel


def test_the_program_that_tries_a_wheel_reads_with_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    need_native_library()
    try_wheel.main()
    assert capsys.readouterr().out.startswith("10,000 records read on ")
    with pytest.raises(AssertionError):
        try_wheel.main(pure=True)


def test_an_environment_that_does_not_exist_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no such environment: PySpark 3\. There are nothing, "):
        try_wheel.beside(Path("any.whl"), ["PySpark 3"])
