"""The pytest fixtures, in a separate small test suite with the mock cluster."""

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.testing.fixtures import *

class Talking(MockKafka):
    def log_tail(self, lines=100):
        usual = "[2026-11-28 10:00:00,000] INFO Loaded (kafka.log.LogManager)\\n" * 100
        return "---- broker 1 ----\\n" + usual + "".join(
            f"[2026-11-28 10:00:0{n % 10},000] WARN the broker's last words {n} (kafka.server)\\n" for n in range(30)
        ) + usual

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


def test_a_failed_test_shows_the_last_warnings_of_the_broker(pytester: pytest.Pytester) -> None:
    """Regression: it showed the last 60 lines, which were about everything else."""
    result = run(pytester, "def test_it(kafka):\n    assert False")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*log of fixture 'kafka'*", "*WARN the broker's last words 29*"])
    shown = [line for line in result.outlines if "last words" in line or "INFO" in line]
    assert len(shown) == 15
    assert not any("INFO" in line for line in shown)


def test_a_broker_without_warnings_shows_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        "import pytest\ndef test_it(kafka):\n    type(kafka).log_tail = lambda *_: '---- 1 ----\\nINFO'"
        "\n    assert False",
    )
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*log of fixture*")


def test_a_log_that_cannot_be_read_does_not_end_the_run(pytester: pytest.Pytester) -> None:
    """Regression: pytest ended with an internal error, without the report of the failure and the other tests."""
    result = run(
        pytester,
        """
        def test_it(kafka):
            def log_tail(self, lines=100):
                raise FileNotFoundError("broker.log")
            type(kafka).log_tail = log_tail
            assert False, "the failure"
        def test_other(kafka):
            pass
        """,
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*the failure*", "the log cannot be read: FileNotFoundError('broker.log')"])


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
