"""From facts to findings."""

from __future__ import annotations

from pyspark_kafka_group.forensics.doctor import cluster_rules, member_rules, offset_rules
from pyspark_kafka_group.forensics.doctor.facts import Facts
from pyspark_kafka_group.forensics.doctor.finding import Finding

RULES = (*member_rules.RULES, *offset_rules.RULES, *cluster_rules.RULES)


def diagnose(facts: Facts) -> list[Finding]:
    """Return what is wrong, the worst first."""
    findings = [finding for rule in RULES for finding in rule(facts)]
    return sorted(findings, key=lambda finding: -finding.severity)
