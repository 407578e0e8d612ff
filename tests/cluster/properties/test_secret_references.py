"""A connection reads referenced values when it opens, and fails if it cannot read them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pyspark_kafka_group.cluster.properties.secret_references import check_references, refers, resolved
from pyspark_kafka_group.offsets.errors import OptionError

pytestmark = pytest.mark.usefixtures("references_allowed")


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a properties file and files of single secrets.  Set the variable ``TEST_SECRET``."""
    (tmp_path / "all.properties").write_text("password = hunter2\nraw=${env:TEST_SECRET}\nempty=\na\\:b=c\n")
    (tmp_path / "password").write_text("hunter2\n")
    (tmp_path / "key.pem").write_text("one\ntwo\n\n")
    monkeypatch.setenv("TEST_SECRET", "tr0ub4dor")
    return tmp_path


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("${file:@/password}", "hunter2"),
        ("${file:@/key.pem}", "one\ntwo\n"),
        ("${file:@/all.properties:password}", "hunter2"),
        ("${file:@/all.properties:empty}", ""),
        ("${file:@/all.properties:a:b}", "c"),
        ("${env:TEST_SECRET}", "tr0ub4dor"),
        ("a ${env:TEST_SECRET}, ${file:@/password};", "a tr0ub4dor, hunter2;"),
        # A reference inside a referenced value stays as it is.
        ("${file:@/all.properties:raw}", "${env:TEST_SECRET}"),
        # Text that only looks like a reference stays as it is.
        ("${PASSWORD}", "${PASSWORD}"),
        ("$env:x {file:y} ${ file:z", "$env:x {file:y} ${ file:z"),
        ("p4$${", "p4$${"),
    ],
)
def test_what_a_reference_means(secrets: Path, value: str, meant: str) -> None:
    given = {"sasl.password": value.replace("@", str(secrets))}
    check_references(given, decided=())
    assert resolved(given) == {"sasl.password": meant}
    assert refers(given["sasl.password"]) == (meant != value)


def test_a_file_is_read_each_time(secrets: Path) -> None:
    given = {"sasl.password": f"${{file:{secrets}/password}}"}
    assert resolved(given)["sasl.password"] == "hunter2"
    (secrets / "password").write_text("changed")
    assert resolved(given)["sasl.password"] == "changed"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${file:@/nowhere}", "@/nowhere cannot be read here: No such file or directory"),
        ("${file:@}", "@ cannot be read here: Is a directory"),
        ("${file:@/binary}", "@/binary is not a text in UTF-8"),
        ("${file:@/all.properties:other}", "@/all.properties has no key 'other'"),
        ("${env:TEST_NO_SUCH_SECRET}", "this process has no variable 'TEST_NO_SUCH_SECRET'"),
        ("${env:TEST_BINARY_SECRET}", "the variable 'TEST_BINARY_SECRET' is not a text in UTF-8"),
    ],
)
def test_what_is_missing_is_named_with_the_option(
    secrets: Path, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_BINARY_SECRET", os.fsdecode(b"hunter2\xff"))
    (secrets / "binary").write_bytes(b"\xff\xfe")
    value, problem = value.replace("@", str(secrets)), problem.replace("@", str(secrets))
    given = {"sasl.password": value}
    check_references(given, decided=())
    text = (
        f"Option 'kafka.sasl.password': {value} has no value: {problem}. The file or variable must exist on the driver"
    )
    with pytest.raises(OptionError, match=re.escape(text)) as error:
        resolved(given)
    assert error.value.option == "kafka.sasl.password"


@pytest.mark.parametrize(
    "value", ["${vault:s3cret}", "s3c${ret:x}", "${file:relative}", "${file:/a:}", "${file:}", "${env:}", "${env:a:b}"]
)
def test_what_no_reference_can_be_is_refused_without_the_value(value: str) -> None:
    for call in (resolved, lambda given: check_references(given, decided=())):
        with pytest.raises(OptionError, match=r"'kafka.x': .*\$\{file:/path:key\} or \$\{env:NAME\}") as error:
            call({"x": value})
        assert value not in str(error.value)
        assert "s3c" not in str(error.value)


def test_variables_of_a_shell_stay_as_they_are() -> None:
    given = {"sasl.kerberos.kinit.cmd": "kinit ${REALM:-A.B}"}
    check_references(given, decided=())
    assert resolved(given) == given


def test_what_has_to_be_known_at_once_cannot_be_a_reference() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.group\.id': \$\{env:GROUP\} is read only when"):
        check_references({"group.id": "${env:GROUP}"}, decided={"group.id"})
