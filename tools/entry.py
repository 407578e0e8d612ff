"""Where ``kafka-group`` begins."""

from __future__ import annotations

import sys

_MISSING = (
    "kafka-group: the command line needs the package 'click', which is not installed here. Install it with "
    "pip install 'pyspark-kafka-group[cli]'.\n"
)


def main() -> None:
    """Run the command line, or say what it lacks."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.stderr.write(_MISSING)
        sys.exit(2)
    from pyspark_kafka_group.tools.commands import kafka_group

    kafka_group(prog_name="kafka-group")
