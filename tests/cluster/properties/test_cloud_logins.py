"""Cloud logins that users copy from pages about Spark's own source become token providers."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.cluster.properties.java_security import as_librdkafka
from pyspark_kafka_group.offsets.errors import OptionError

IAM = "software.amazon.msk.auth.iam."
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
GOOGLE = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
PROVIDER, CONFIG = "sasl.oauthbearer.provider", "sasl.oauthbearer.config"


def iam(options: str = "", prefix: str = "") -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{prefix}{IAM}IAMLoginModule required{options};",
        "sasl.client.callback.handler.class": f"{prefix}{IAM}IAMClientCallbackHandler",
    }


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (iam(), {PROVIDER: "msk:"}),
        (iam(prefix="shadedmskiam."), {PROVIDER: "msk:"}),
        (iam(' awsProfileName="etl" awsDebugCreds="true"'), {PROVIDER: "msk:", CONFIG: "profile=etl"}),
        ({**iam(), PROVIDER: "msk:eu-west-1"}, {PROVIDER: "msk:eu-west-1"}),
        (
            {
                **LOGIN,
                "sasl.jaas.config": f'{OAUTH} required awsProfileName="etl";',
                "sasl.login.callback.handler.class": f"{IAM}IAMOAuthBearerLoginCallbackHandler",
            },
            {PROVIDER: "msk:", CONFIG: "profile=etl"},
        ),
        (
            {
                **LOGIN,
                "sasl.jaas.config": f"kafkashaded.{OAUTH} required;",
                "sasl.login.callback.handler.class": GOOGLE,
            },
            {PROVIDER: "google"},
        ),
        ({**LOGIN, "sasl.login.callback.handler.class": GOOGLE}, {PROVIDER: "google"}),
        ({PROVIDER: "shop.tokens:token", CONFIG: "x"}, {PROVIDER: "shop.tokens:token", CONFIG: "x"}),
    ],
    ids=str,
)
def test_what_people_paste_means_a_provider(given: dict[str, str], meant: dict[str, str]) -> None:
    expected = {**LOGIN, **meant}
    assert as_librdkafka(given) == expected
    assert as_librdkafka(expected) == expected


def test_a_connection_without_tls_stays_as_it_is() -> None:
    found = as_librdkafka({PROVIDER: "google", "security.protocol": "sasl_plaintext"})
    assert found["security.protocol"] == "sasl_plaintext"


@pytest.mark.parametrize(
    ("given", "option", "problem"),
    [
        ({PROVIDER: "msk"}, PROVIDER, "names no token provider"),
        (
            {PROVIDER: "google", "sasl.oauthbearer.method": "oidc"},
            PROVIDER,
            "together with kafka.sasl.oauthbearer.meth",
        ),
        ({PROVIDER: "google", "sasl.oauthbearer.scope": "x"}, PROVIDER, "together with kafka.sasl.oauthbearer.scope"),
        ({PROVIDER: "google", "sasl.jaas.config": f"{OAUTH} required;"}, PROVIDER, "together with kafka.sasl.jaas"),
        ({PROVIDER: "google", "sasl.mechanism": "PLAIN"}, "sasl.mechanism", "is not OAUTHBEARER"),
        ({PROVIDER: "google", "security.protocol": "SSL"}, "security.protocol", "has no login"),
        (iam(' awsRoleSecretAccessKey="hunter2"'), "sasl.jaas.config", "equivalent of its option awsRoleSecretAccessK"),
        (iam(' awsRoleArn="hunter2"'), "sasl.jaas.config", "name a profile of AWS that does (awsProfileName)"),
        (iam(' awsProfileName="hunter2,b"'), "sasl.jaas.config", "or of the option's value"),
        ({**iam(), "sasl.jaas.config": f"{OAUTH} required;"}, "sasl.jaas.config", "is not the one of this login"),
        ({**iam(), "sasl.jaas.config": 'hunter2 "'}, "sasl.jaas.config", "Write software.amazon.msk.auth.iam"),
        (
            {**LOGIN, "sasl.login.callback.handler.class": "com.example.Handler"},
            "sasl.login.callback.handler.class",
            "name a token provider with kafka.sasl.oauthbearer.provider",
        ),
        (
            {**LOGIN, "sasl.client.callback.handler.class": f"{IAM}IAMClientCallbackHandler"},
            "sasl.client.callback.handler.class",
            "may stay beside kafka.sasl.mechanism=AWS_MSK_IAM",
        ),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused_without_its_secrets(
    given: dict[str, str], option: str, problem: str
) -> None:
    with pytest.raises(OptionError) as refused:
        as_librdkafka(given)
    assert str(refused.value).startswith(f"Option 'kafka.{option}': ")
    assert problem in str(refused.value)
    assert "hunter2" not in str(refused.value)
