"""What the owner of the process must allow for the examples of the pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_URLS = "url:https://login.example/oauth2/token", "url:https://login.microsoft.com/TENANT"


@pytest.fixture(autouse=True)
def _allowed_by_the_owner(allow: Callable[..., None]) -> None:
    allow("file:/etc/kafka", "env:KAFKA_*", "env:REGISTRY_*", "function:shop.tokens:token", *_URLS)
