"""Combinations of options that a seed draws, against what was produced; see :mod:`integration.combinations`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.combinations import Case
from pyspark_kafka_group.testing import Kafka

# COMBINATIONS=200 tries more of them; COMBINATIONS_FROM is where to begin.
_FIRST = int(os.environ.get("COMBINATIONS_FROM", "0"))
_SEEDS = range(_FIRST, _FIRST + int(os.environ.get("COMBINATIONS", "2")))


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_stream(spark: SparkSession, kafka: Kafka, tmp_path: Path, seed: int) -> None:
    Case(spark, kafka, tmp_path, seed).stream()


@pytest.mark.parametrize("seed", [seed + 1_000_000 for seed in _SEEDS])
def test_a_batch(spark: SparkSession, kafka: Kafka, tmp_path: Path, seed: int) -> None:
    Case(spark, kafka, tmp_path, seed).batch()
