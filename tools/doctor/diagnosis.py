"""From facts to findings."""

from __future__ import annotations

from typing import Any

from pyspark_kafka_group.tools.doctor import cluster_rules, member_rules, offset_rules
from pyspark_kafka_group.tools.doctor.facts import Facts
from pyspark_kafka_group.tools.doctor.finding import Finding, Severity

RULES = (*member_rules.RULES, *offset_rules.RULES, *cluster_rules.RULES)


def diagnose(facts: Facts) -> list[Finding]:
    """Return what is wrong, the worst first."""
    findings = [finding for rule in RULES for finding in rule(facts)]
    return sorted(findings, key=lambda finding: -finding.severity)


def diagnosis_document(facts: Facts, findings: list[Finding]) -> dict[str, Any]:
    """Return what ``doctor`` prints."""
    return {
        "group": facts.group,
        "state": facts.state,
        "healthy": all(finding.severity is Severity.NOTE for finding in findings),
        "findings": [
            {
                "severity": finding.severity.name,
                "code": finding.code,
                "object": finding.thing,
                "evidence": finding.evidence,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }
