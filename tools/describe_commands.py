"""``describe`` and ``coordinator``: a group as it is now."""

from __future__ import annotations

import json

import click

from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.tools.analysis.documents import coordinator_document, group_document
from pyspark_kafka_group.tools.analysis.group_view import view_coordinator, view_group
from pyspark_kafka_group.tools.analysis.lag_status import Status
from pyspark_kafka_group.tools.analysis.live_group import dated, judged, patiently
from pyspark_kafka_group.tools.command_base import FOUND, connected, missing, print_lines, say, wide_option
from pyspark_kafka_group.tools.reports import coordinator_report, group_report


@click.command()
@connected
@click.option("--no-status", is_flag=True, help="Do not judge the lag, which reads the offsets topic.")
@wide_option
def describe(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    no_status: bool,
    wide: bool,
) -> None:
    """Shows the members, committed offsets and lag of GROUP.

    BEHIND is how old the record at the committed offset is, DRAINED how long the lag lasts if it goes
    on falling as it did in the last commits.

    \b
    STATUS judges the lag by the last ten commits, as LinkedIn's Burrow does:
      OK      no lag, or it falls at times
      WARN    offsets go on, but the lag never falls
      STALL   commits go on, the offset does not
      STOP    no commits any more
      REWIND  the offset went back and has not come back yet
      HELDBACK  no leader answers: nothing can be read, the lag is not known

    Ends with 1 if there is no such group, or a partition is at STALL, STOP, REWIND
    or HELDBACK.

    \b
    Examples:
      kafka-group describe -b localhost:9092 orders-etl
      kafka-group describe --profile prod --json orders-etl | jq .lag
    """
    view = patiently(lambda: view_group(inspection, group))
    if not view.exists:
        missing(group)
    view = dated(view, inspection)
    if not no_status:
        view = judged(view, inspection, properties, say)
    if as_json:
        print_lines([json.dumps(group_document(view))])
    else:
        print_lines(group_report(view, wide=wide))
    if view.status is Status.ERR:
        raise click.exceptions.Exit(FOUND)


@click.command()
@connected
def coordinator(inspection: GroupInspection, properties: dict[str, str], group: str, as_json: bool) -> None:
    """Shows which broker coordinates GROUP, and why.

    The group need not exist.

    \b
    Example:
      kafka-group coordinator -b localhost:9092 orders-etl
    """
    del properties
    view = patiently(lambda: view_coordinator(inspection, group))
    print_lines([json.dumps(coordinator_document(view))] if as_json else coordinator_report(view))
