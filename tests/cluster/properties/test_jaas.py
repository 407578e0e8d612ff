"""The source reads JAAS configurations like Java's clients, and no error shows their content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.cluster.properties.java_login import JaasError, parse_jaas

ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def quoted(text: str) -> str:
    """Return a value with quotes and escapes."""
    return f'"{"".join(ESCAPES.get(character, character) for character in text)}"'


@given(st.text(), st.text())
def test_any_username_and_password_come_back(username: str, password: str) -> None:
    module = parse_jaas(f"a.B required username={quoted(username)} password={quoted(password)};")
    assert module.options == {"username": username, "password": password}


@given(st.text())
def test_any_text_is_a_configuration_or_none_and_nothing_else_happens(text: str) -> None:
    for whole in (text, f"a.B required {text};", f'a.B required x="{text}";'):
        try:
            parse_jaas(whole)
        except JaasError:
            continue


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=plain", "plain"),
        ("x=a.b-c_d$e1", "a.b-c_d$e1"),
        ("x='single \"quotes\"'", 'single "quotes"'),
        (r'x="a\"b\\c"', 'a"b\\c'),
        (r'x="\t\n\101\7\477"', "\t\nA\x07'7"),
        (r'x="\d\%"', "d%"),
        ('x="a // no comment; = /* none */"', "a // no comment; = /* none */"),
        ("x = 'a' // a comment\n", "a"),
        ("/* a\ncomment */ x='a'", "a"),
        ("x=a x=b", "b"),
        ("x=''", ""),
        ("'x'=\u00e9t\u00e9", "\u00e9t\u00e9"),
    ],
)
def test_values_are_written_as_in_java(text: str, value: str) -> None:
    assert parse_jaas(f"  a.b.C\n required {text}  ;\n").options == {"x": value}


def test_the_flag_may_be_any_of_javas() -> None:
    for flag in ("required", "REQUIRED", "requisite", "sufficient", "optional"):
        assert parse_jaas(f"a.b.C {flag};").name == "a.b.C"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "begin with a class"),
        ("  // nothing", "begin with a class"),
        ("=;", "begin with a class"),
        ("a.B", "no control flag"),
        ("a.B username=s3cret;", "no control flag"),
        ("a.B required", "end with a semicolon"),
        ('a.B required x="s3cret"', "end with a semicolon"),
        ("a.B required x;", "option 1 has no value"),
        ("a.B required y=z x=;", "option 2 has no value"),
        ('a.B required x="s3"cret";', "is not valid here"),
        ('a.B required x="s3" cret y="";', "option 2 has no value"),
        ('a.B required x="s3cret;', "character 16 is not valid"),
        ('a.B required x="s3\ncret";', "character 16 is not valid"),
        ("a.B required x=17s3cret;", "character 16 is not valid"),
        ("a.B required x=/s3/cret;", "character 16 is not valid"),
        ("a.B required x=y; c.D required;", "more than one"),
        ("a.B required; s3cret", "more than one"),
    ],
)
def test_what_is_wrong_is_said_without_what_stands_there(text: str, problem: str) -> None:
    with pytest.raises(JaasError, match=problem) as error:
        parse_jaas(text)
    assert "s3" not in str(error.value)
    assert "cret" not in str(error.value)


def test_options_are_not_shown() -> None:
    assert "s3cret" not in repr(parse_jaas("a.B required password=s3cret;"))
