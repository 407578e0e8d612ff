"""Commands as a shell runs them, without a process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from pyspark_kafka_group.tools.commands import kafka_group
from tests.wire.fake_broker import FakeBroker


def run(*arguments: str) -> Result:
    """Run ``kafka-group`` with these arguments.  No error may show a traceback."""
    found = CliRunner().invoke(kafka_group, arguments)
    assert "Traceback" not in found.output
    return found


def run_for_etl(broker: FakeBroker, command: str, *options: str) -> Result:
    """Run a command for the group ``etl`` of the cluster."""
    return run(command, "-b", str(broker.address), *options, "etl")


def refused(found: Result, *said: str, code: int = 2) -> None:
    """Check that a command has failed, and printed only these words."""
    assert (found.exit_code, found.stdout) == (code, ""), found.output
    for words in said:
        assert words in found.stderr
