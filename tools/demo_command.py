"""``demo``: a local Kafka with a steady stream of orders, and Spark applications that share them."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import click

from pyspark_kafka_group.tools.command_base import fail
from pyspark_kafka_group.tools.group_commands import watch


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="Where Kafka listens.")
@click.option(
    "--applications",
    type=click.IntRange(0, 6),
    default=0,
    show_default=True,
    metavar="N",
    help="Also start N Spark applications of one group, and show the group.",
)
def demo(*, port: int, applications: int) -> None:
    """Start a local Kafka with a stream of orders.

    Kafka listens on this machine only. The topic 'orders' has 6 partitions and gets 100 records a
    second. You need Java 17 or newer, and PySpark: pip install 'pyspark-kafka-group[spark]'. The
    first start fetches Kafka, 44 MB.

    Press Ctrl-C to stop. This deletes Kafka's data.

    \b
    Example:
      kafka-group demo --applications 2
    """
    # Deliberate: not at the top.  The other commands need no brokers, and start sooner.
    from pyspark_kafka_group.testing import KafkaTestingError, LocalKafka
    from pyspark_kafka_group.testing.errors import PortInUseError
    from pyspark_kafka_group.tools.demo import GROUP, PARTITIONS, TOPIC, applications_of, introduction, orders_to

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    servers = f"localhost:{port}"
    try:
        with ExitStack() as running:
            click.echo("Starting Kafka ...")
            running.enter_context(LocalKafka(port=port)).create_topic(TOPIC, PARTITIONS)
            running.enter_context(orders_to(servers))
            if applications:
                click.echo(f"Starting {applications} Spark applications ...")
                running.enter_context(applications_of(servers, applications))
            running.callback(click.echo, "\nStopping, and deleting Kafka's data ...")
            if applications:
                click.get_current_context().invoke(watch, bootstrap_server=servers, group=GROUP)
            else:
                click.echo(introduction(servers))
                signal.pause()
    except KeyboardInterrupt:
        return  # the usual end
    except PortInUseError as problem:
        fail(f"{problem}, with --port")
    except KafkaTestingError as problem:
        fail(str(problem))
