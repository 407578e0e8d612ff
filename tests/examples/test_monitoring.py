"""The dashboard, the alerts and the manifests of examples/monitoring use only names that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyspark_kafka_group.metrics import METRICS

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
LABELS = {metric.prometheus_name: set(metric.labels) for metric in METRICS}


def texts(value: Any) -> Iterator[str]:
    """Yield every expression and query, at any depth."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("expr", "query") and isinstance(item, str):
                yield item
            else:
                yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
(GROUP,) = yaml.safe_load((FOLDER / "prometheus-rules.yaml").read_text(encoding="utf-8"))["groups"]
RULES = GROUP["rules"]
EXPRESSIONS = [text for text in texts(DASHBOARD) if "kafka_group" in text]


def test_every_panel_has_an_expression_and_a_place_of_its_own() -> None:
    places = set()
    for panel in DASHBOARD["panels"]:
        assert panel["targets"], panel["title"]
        assert all("kafka_group_" in target["expr"] for target in panel["targets"]), panel["title"]
        places.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
    assert len(places) == len(DASHBOARD["panels"]) == len({panel["id"] for panel in DASHBOARD["panels"]})


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *(rule["expr"] for rule in RULES)])
def test_the_dashboard_and_the_alerts_use_metrics_and_labels_that_exist(expression: str) -> None:
    names = re.findall(r"\bkafka_group_\w+", expression)
    assert names
    assert set(names) <= LABELS.keys()
    for name, selectors in re.findall(r"\b(kafka_group_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selectors)) <= LABELS[name]
    grouped = {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in labels.split(", ")}
    assert grouped <= set.union(*(LABELS[name] for name in names))


def test_there_is_an_alert_for_each_metric_that_the_page_about_operating_says_to_alert_on() -> None:
    page = (FOLDER.parents[1] / "docs" / "operating.md").read_text(encoding="utf-8")
    table = page.partition("Alert on these")[2].partition("\n\n")[2].partition("\n\n")[0]
    asked = set(re.findall(r"`(kafka_group_\w+)`", table))
    assert len(asked) >= 6
    assert asked <= {name for rule in RULES for name in re.findall(r"\bkafka_group_\w+", rule["expr"])}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_labels_that_it_has_and_a_page(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    names = re.findall(r"\bkafka_group_\w+", rule["expr"])
    aggregated = re.search(r"^(?:min_over_time\()?sum by \(([^)]*)\)", rule["expr"])
    labels = set(aggregated[1].split(", ")) if aggregated else LABELS[names[0]]
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    text = (FOLDER.parents[1] / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert not heading or heading in {found.lower().replace(" ", "-") for found in headings}


@pytest.mark.parametrize("manifest", sorted(FOLDER.glob("keda-*.yaml")), ids=lambda path: path.name)
def test_a_manifest_has_one_kafka_trigger_whose_values_are_texts(manifest: Path) -> None:
    found = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    assert found["apiVersion"] == "keda.sh/v1alpha1"
    (trigger,) = found["spec"]["triggers"]
    assert trigger["type"] == "kafka"
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes no other types"
