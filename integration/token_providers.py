"""Token providers of a user, for tests.  Each gets ``URL ID SECRET`` of a `TokenServer`."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request

_last = ""


class Vault:
    """A class with a provider as a method."""

    @staticmethod
    def token(config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return a token of the server.

        If this fails, raise an error with the cause, and with a text that shows the previous token.
        """
        global _last  # noqa: PLW0603
        url, client_id, secret = config.split()
        login = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        request = urllib.request.Request(url, b"", {"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as problem:
            raise RuntimeError(f"the vault is sealed: HTTP {problem.code}, after {_last}") from None
        _last = found["access_token"]
        return _last, time.time() + found["expires_in"], client_id, {"pool": "test"}
