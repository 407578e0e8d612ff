"""The token providers of the clouds: Amazon's with its real library, the others with fake libraries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login import token_providers
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, PROVIDER_CONFIG, Token
from pyspark_kafka_group.wire.login.token_providers import NoTokenError, token_provider
from pyspark_kafka_group.wire.types import PropertyError

KEY, SECRET = "AKIDEXAMPLE", "of-the-key-itself"
MSK_SERVER = "b-1.orders.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    token_providers._provider.cache_clear()
    yield
    token_providers._provider.cache_clear()


def fetch(name: str, config: str = "", server: str = "b:9092") -> Token:
    given = {"bootstrap.servers": server, PROVIDER: name, PROVIDER_CONFIG: config}
    return token_provider(given).fetch(Deadline.after(20))


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# -- Amazon MSK, signed by its own library


def check_signed(token: Token, region: str, key: str = KEY, secret: str = SECRET) -> dict[str, str]:
    """Check a token as AWS does: recompute the signature of the URL.  Return its parameters."""
    url = urlsplit(decoded(token.text).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", f"kafka.{region}.amazonaws.com", "/")
    given = dict(parse_qsl(url.query))
    assert given["Action"] == "kafka-cluster:Connect"
    when = given["X-Amz-Date"]
    scope = f"{when[:8]}/{region}/kafka-cluster/aws4_request"
    assert given["X-Amz-Credential"] == f"{key}/{scope}"
    signed_with = {name: value for name, value in given.items() if name not in ("X-Amz-Signature", "User-Agent")}
    query = "&".join(f"{quote(name, safe='')}={quote(signed_with[name], safe='')}" for name in sorted(signed_with))
    canonical = f"GET\n/\n{query}\nhost:{url.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    to_sign = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signing_key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing_key = hmac.digest(signing_key, part.encode(), "sha256")
    assert hmac.new(signing_key, to_sign.encode(), "sha256").hexdigest() == given["X-Amz-Signature"]
    signed_at = datetime.strptime(when, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    assert token.expires_at == signed_at + int(given["X-Amz-Expires"])
    assert 700 < token.good_until.left_s <= 720, "80 % of 15 minutes"
    return given


@pytest.mark.parametrize(
    ("name", "server", "region"),
    [
        ("msk:eu-west-1", "b:9092", "eu-west-1"),
        ("msk:", MSK_SERVER, "eu-central-1"),
        ("msk:", "boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098,b:1", "us-east-1"),
    ],
)
def test_a_token_of_amazon_is_a_signed_url(name: str, server: str, region: str) -> None:
    check_signed(fetch(name, server=server), region)


def test_credentials_of_a_session_and_of_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-session")
    assert check_signed(fetch("msk:eu-west-1"), "eu-west-1")["X-Amz-Security-Token"] == "of-the-session"
    file = tmp_path / "credentials"
    file.write_text("[etl]\naws_access_key_id=AKIDPROFILE\naws_secret_access_key=of-the-profile\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    check_signed(fetch("msk:eu-west-1", "profile=etl"), "eu-west-1", "AKIDPROFILE", "of-the-profile")


STS_ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>of-the-role</SecretAccessKey><SessionToken>of-sts</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


def test_a_profile_may_assume_a_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    asked: list[dict[str, str]] = []

    class Sts(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(STS_ANSWER.encode())

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Sts) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
        role = "arn:aws:iam::1:role/etl"
        (tmp_path / "config").write_text(
            f"[profile etl]\nregion=eu-west-1\nrole_arn={role}\nexternal_id=x-1\ncredential_source=Environment\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        token = fetch("msk:eu-west-1", "profile=etl")
        server.shutdown()
    assert check_signed(token, "eu-west-1", "AKIDROLE", "of-the-role")["X-Amz-Security-Token"] == "of-sts"
    assert {"RoleArn": role, "ExternalId": "x-1"}.items() <= asked[0].items()


def test_amazon_without_credentials_and_without_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        PropertyError, match=r"contains no region of AWS\. Write .* or kafka\.sasl\.oauthbearer\.provider=msk:R"
    ):
        fetch("msk:", server="kafka.example.org:9098")
    with pytest.raises(PropertyError, match=r"^sasl\.oauthbearer\.config: .*Write profile=\.\.\.\."):
        fetch("msk:eu-west-1", "arn:aws:iam::1:role/etl")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(NoTokenError, match="'msk:eu-west-1' failed with "):
        fetch("msk:eu-west-1")


# -- the others, with fake libraries


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Replace a library, and the packages above it, by a fake module."""
    parts = name.split(".")
    for count in range(1, len(parts)):
        package = ".".join(parts[:count])
        if package not in sys.modules:
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
    made = ModuleType(name)
    made.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, made)


class AzureCredential:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def get_token(self, scope: str) -> Any:
        return SimpleNamespace(token=f"for.{scope.encode().hex()}", expires_on=int(soon().timestamp()))


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("name", "config", "scope"),
    [
        ("entra:ns.servicebus.windows.net", "", "https://ns.servicebus.windows.net/.default"),
        ("entra:ns.servicebus.windows.net:9093", "", "https://ns.servicebus.windows.net/.default"),
        ("entra:x", "scope=api://kafka/.default", "api://kafka/.default"),
    ],
)
def test_a_token_of_entra(monkeypatch: pytest.MonkeyPatch, name: str, config: str, scope: str) -> None:
    AzureCredential.made = 0
    stand_in(monkeypatch, "azure.identity", DefaultAzureCredential=AzureCredential)
    given = {PROVIDER: name, PROVIDER_CONFIG: config}
    for _ in range(2):
        token = token_provider(given).fetch(Deadline.after(5))
        assert token.text == f"for.{scope.encode().hex()}"
        assert 2800 < token.good_until.left_s <= 2880
    assert AzureCredential.made == 1


class GoogleCredentials:
    """Fake credentials of google.auth: their expiry time has no time zone."""

    service_account_email: str | None = "etl@project.iam.gserviceaccount.com"

    def __init__(self) -> None:
        self.token: str | None = None
        self.expiry: datetime | None = None

    def refresh(self, request: object) -> None:
        assert request == "a request"
        self.token, self.expiry = "ya29.opaque", soon().replace(tzinfo=None)


def stand_in_for_google(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    scopes: list[Any] = []

    def default(*, scopes: Any, found: list[Any] = scopes) -> tuple[GoogleCredentials, str]:
        found.append(scopes)
        return GoogleCredentials(), "project"

    stand_in(monkeypatch, "google.auth", default=default)
    stand_in(monkeypatch, "google.auth.transport", __path__=[])
    stand_in(monkeypatch, "google.auth.transport.requests", Request=lambda: "a request")
    return scopes


def check_google(token: Token, principal: str) -> None:
    header, claims, signature = (decoded(part) for part in token.text.split("."))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    found = json.loads(claims)
    assert (found["iss"], found["sub"], found["scope"]) == ("Google", principal, "kafka")
    assert found["exp"] == token.expires_at
    assert signature == b"ya29.opaque"
    assert 2800 < token.good_until.left_s <= 2880


def test_a_token_of_google(monkeypatch: pytest.MonkeyPatch) -> None:
    scopes = stand_in_for_google(monkeypatch)
    check_google(fetch("google"), "etl@project.iam.gserviceaccount.com")
    assert scopes == [["https://www.googleapis.com/auth/cloud-platform"]]
    monkeypatch.setattr(GoogleCredentials, "service_account_email", None)
    with pytest.raises(NoTokenError, match=r"name no service account.*GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"):
        fetch("google")
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "me@x")
    check_google(fetch("google"), "me@x")
    with pytest.raises(PropertyError, match=r"^sasl\.oauthbearer\.config: .*Remove it\."):
        fetch("google", "scope=x")


def test_service_credentials_of_databricks_on_each_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.credentials

    stand_in_for_google(monkeypatch)
    keys = botocore.credentials.Credentials("AKIDUC", "of-uc", "session-of-uc")
    clouds = {
        "on-aws": SimpleNamespace(get_credentials=lambda: keys),
        "on-azure": AzureCredential(),
        "on-google": GoogleCredentials(),
    }
    stand_in(monkeypatch, "databricks.service_credentials", getServiceCredentialsProvider=clouds.__getitem__)
    check_signed(fetch("databricks:on-aws", server=MSK_SERVER), "eu-central-1", "AKIDUC", "of-uc")
    scope = "https://ns.servicebus.windows.net/.default"
    assert fetch("databricks:on-azure", server="ns.servicebus.windows.net:9093").text == f"for.{scope.encode().hex()}"
    assert fetch("databricks:on-azure", "scope=s").text == f"for.{b's'.hex()}"
    check_google(fetch("databricks:on-google"), "etl@project.iam.gserviceaccount.com")
    with pytest.raises(NoTokenError, match="failed with KeyError: 'unknown'"):
        fetch("databricks:unknown")


@pytest.mark.parametrize(
    ("name", "missing", "remedy"),
    [
        ("msk:eu-west-1", "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", r"pip install 'pyspark-kafka-group\[msk\]'"),
        ("entra:x", "azure.identity", r"pip install 'pyspark-kafka-group\[entra\]'"),
        ("google", "google.auth", r"pip install 'pyspark-kafka-group\[google\]'"),
        ("databricks:x", "databricks.service_credentials", "which only Databricks Runtime has. Run on Databricks"),
    ],
)
def test_a_missing_library_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: str, remedy: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PropertyError, match=f"^sasl.oauthbearer.provider: {name}: .*{remedy}"):
        fetch(name)
