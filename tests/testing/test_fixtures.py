"""The pytest fixtures, in a separate small test suite with the mock cluster."""

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.testing.fixtures import *

class Talking(MockKafka):
    def log_tail(self, lines=100):
        return "the broker's last words"

@pytest.fixture(scope="session")
def kafka():
    with Talking() as cluster:
        yield cluster
"""


def run(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider")


def test_topics_are_named_after_the_test_and_differ(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        @pytest.mark.parametrize("x", ["a b/c"])
        def test_it(topic, kafka, x):
            first, second = topic(3), topic()
            assert first != second
            assert first.startswith("test_it-a-b-c-")
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_failed_test_shows_the_brokers_log(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(kafka):\n    assert False")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*log of fixture 'kafka'*", "the broker's last words"])


def test_a_passed_test_shows_no_log(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(kafka):\n    pass")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*last words*")


def test_a_missing_broker_is_an_error_and_no_skip(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(pytester.path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    pytester.makeconftest("from pyspark_kafka_group.testing.fixtures import *")
    pytester.makepyfile("def test_it(topic):\n    topic()")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*JavaError: JAVA_HOME=*holds no bin/java*install Java 17 or newer*"])


def test_topics_of_a_cluster_that_stays_are_deleted_also_if_the_test_has_deleted_one(pytester: pytest.Pytester) -> None:
    """Regression: the test ended with an error, and its other topics stayed."""
    pytester.makeconftest(
        """
        import pytest
        from confluent_kafka import KafkaError, KafkaException
        from pyspark_kafka_group.testing import ExistingKafka, KafkaTestingError
        from pyspark_kafka_group.testing.fixtures import *

        class Staying(ExistingKafka):
            def __init__(self):
                super().__init__("127.0.0.1:1")
                self.topics = []

            def create_topic(self, name, partitions=1, **_):
                self.topics.append(name)

            def delete_topic(self, name):
                if name not in self.topics:
                    raise KafkaTestingError(name) from KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
                self.topics.remove(name)

        @pytest.fixture(scope="session")
        def kafka():
            cluster = Staying()
            yield cluster
            assert cluster.topics == []
        """
    )
    pytester.makepyfile("def test_it(kafka, topic):\n    topic()\n    kafka.delete_topic(topic())\n    topic()")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
