"""``doctor``: what is wrong with a group, and what to do about it."""

from __future__ import annotations

import json

import click

from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.tools.analysis.live_group import patiently
from pyspark_kafka_group.tools.command_base import (
    FOUND,
    Wanted,
    connected,
    missing,
    print_lines,
    topics_option,
)
from pyspark_kafka_group.tools.doctor.diagnosis import diagnose, diagnosis_document
from pyspark_kafka_group.tools.doctor.examination import examine
from pyspark_kafka_group.tools.doctor.finding import Severity
from pyspark_kafka_group.tools.reports import diagnosis_report


@click.command()
@connected
@topics_option
def doctor(
    *, inspection: GroupInspection, properties: dict[str, str], group: str, as_json: bool, topics: Wanted
) -> None:
    """Finds what is wrong with GROUP: needless rebalances, records and offsets that are gone or go
    soon, transactions that hold readers back, rights that are missing, and what the cluster lacks.

    It changes nothing, and looks with the rights of the user of this connection.  With --topics the
    group need not exist yet: what a query would need is looked at before its first start.

    Each finding has a code, what is at fault, what was seen, and what to do.  A NOTE is no fault: it
    says what the cluster lacks, and which option goes with that.  Ends with 1 if there is more than
    notes, and with 2 if it could not look.

    \b
    Examples:
      kafka-group doctor -b localhost:9092 orders-etl
      kafka-group doctor --profile prod --topics orders new-group
      kafka-group doctor --profile prod --json orders-etl | jq .findings[].code
    """
    facts = patiently(lambda: examine(inspection, properties, group, [*topics]))
    if facts is None:
        missing(group)
    findings = diagnose(facts)
    if as_json:
        print_lines([json.dumps(diagnosis_document(facts, findings))])
    else:
        print_lines(diagnosis_report(facts, findings))
    if any(finding.severity > Severity.NOTE for finding in findings):
        raise click.exceptions.Exit(FOUND)
