"""A Spark application that copies a topic into a table: ``python -m benchmarks.landing_application SETTINGS``.

The settings are a JSON object with ``name``, ``cores``, ``arm``, ``case``, ``folder``, ``table``, ``eventLog`` and
``checkpoint``.  `benchmarks.application` says what it prints.  Landing adds ``commit_s`` and ``conflicts``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark_kafka_group
from benchmarks.application import follow
from benchmarks.environment import session
from benchmarks.landing_tables import Case, Table
from benchmarks.queries import batches_of, progress_of
from benchmarks.views import APPEND_TUNED, LANDING
from integration.compatibility.lake_writer import settings as of_format


def main(given: str) -> None:
    """Copy until standard input ends."""
    settings: Mapping[str, Any] = json.loads(given)
    arm, case, folder = settings["arm"], Case(**settings["case"]), Path(settings["folder"])
    ours = arm != APPEND_TUNED
    if ours:
        case = replace(case, more={**case.more, "eventLog": settings["eventLog"]})
    spark = session({**of_format(folder), "spark.master": f"local[{settings['cores']}]"})
    table = Table(spark, folder, arm, case, settings["table"])
    writer = table.writer(case).option("checkpointLocation", settings["checkpoint"])
    started = time.time()
    query = writer.start()

    def batches() -> list[dict[str, float]]:
        if arm != LANDING:
            return [{"end": batch.written, "rows": batch.rows} for batch in batches_of(progress_of(query))]
        return [
            {
                "end": commit.end,
                "rows": commit.landed.records,
                "commit_s": commit.landed.seconds,
                "conflicts": commit.landed.conflicts,
            }
            for commit in table.commits
        ]

    follow(query, started, batches)
    if ours:
        pyspark_kafka_group.stop(query)
    else:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
