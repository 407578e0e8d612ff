"""The dashboard and the manifests of examples/monitoring ask for what there is."""

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
    """Every expression and query, wherever it stands."""
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
EXPRESSIONS = [text for text in texts(DASHBOARD) if "kafka_group" in text]


def test_every_panel_has_an_expression_and_a_place_of_its_own() -> None:
    places = set()
    for panel in DASHBOARD["panels"]:
        assert panel["targets"], panel["title"]
        assert all("kafka_group_" in target["expr"] for target in panel["targets"]), panel["title"]
        places.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
    assert len(places) == len(DASHBOARD["panels"]) == len({panel["id"] for panel in DASHBOARD["panels"]})


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_dashboard_uses_metrics_and_labels_that_exist(expression: str) -> None:
    names = re.findall(r"\bkafka_group_\w+", expression)
    assert names
    assert set(names) <= LABELS.keys()
    for name, selectors in re.findall(r"\b(kafka_group_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selectors)) <= LABELS[name]
    grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(", ")}
    assert grouped <= set.union(*(LABELS[name] for name in names))


@pytest.mark.parametrize("manifest", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_a_manifest_has_one_kafka_trigger_whose_values_are_texts(manifest: Path) -> None:
    found = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    assert found["apiVersion"] == "keda.sh/v1alpha1"
    (trigger,) = found["spec"]["triggers"]
    assert trigger["type"] == "kafka"
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes no other types"
