"""Entry point of ``kafka-group``, also as ``python -m pyspark_kafka_group.tools``."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, or name the package that is missing."""
    for package in ("click", "rich"):
        if find_spec(package) is None:
            sys.stderr.write(
                f"kafka-group: the package '{package}' is not installed. Install it with pip install "
                f"'pyspark-kafka-group[cli]'.\n"
            )
            sys.exit(2)
    from pyspark_kafka_group.tools.commands import kafka_group

    kafka_group(prog_name="kafka-group")


if __name__ == "__main__":
    main()
