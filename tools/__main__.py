"""Entry point of ``kafka-group``, also as ``python -m pyspark_kafka_group.tools``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or name the package that is missing."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.stderr.write(
            "kafka-group: the package 'click' is not installed. Install it with pip install "
            "'pyspark-kafka-group[cli]'.\n"
        )
        sys.exit(2)
    from pyspark_kafka_group.tools.commands import kafka_group

    kafka_group(prog_name="kafka-group")


if __name__ == "__main__":
    main()
