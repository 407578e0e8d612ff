"""The command ``kafka-group`` and its subcommands."""

from __future__ import annotations

import io
import sys

import click

from pyspark_kafka_group.cluster.properties.permissions import options_of_the_owner
from pyspark_kafka_group.tools.checkpoint_commands import export_checkpoint, import_checkpoint
from pyspark_kafka_group.tools.demo_command import demo
from pyspark_kafka_group.tools.event_commands import events, timeline
from pyspark_kafka_group.tools.group_commands import coordinator, describe, doctor, groups, watch
from pyspark_kafka_group.tools.health_command import health
from pyspark_kafka_group.tools.history_commands import history, rewinds
from pyspark_kafka_group.tools.reset_command import reset


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="pyspark-kafka-group", message="%(version)s")
@click.pass_context
def kafka_group(context: click.Context) -> None:
    """Show Kafka consumer groups: lag, owners, and the history of their offsets.
    Only --execute changes anything.

    \b
    Name the cluster with --bootstrap-server, with a --config file, with a
    --profile (~/.config/kafka-group/NAME.properties), or with a variable:
    KAFKA_GROUP_BOOTSTRAP_SERVERS, KAFKA_GROUP_CONFIG or KAFKA_GROUP_PROFILE.
    Put passwords in a file, not on the command line.

    \b
    Exit codes:
      0   all is well
      1   the command has found a problem, or the group does not exist
      2   the command has failed
    """
    context.with_resource(options_of_the_owner())
    # A character that the locale lacks must not end a command that has set offsets.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


# As --help shows them.
_COMMANDS = (
    groups,
    describe,
    watch,
    coordinator,
    history,
    rewinds,
    doctor,
    reset,
    import_checkpoint,
    export_checkpoint,
)
for _command in (*_COMMANDS, health, events, timeline, demo):
    kafka_group.add_command(_command)
