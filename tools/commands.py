"""The command line ``kafka-group``: which commands there are."""

from __future__ import annotations

import click

from pyspark_kafka_group.tools.describe_commands import coordinator, describe
from pyspark_kafka_group.tools.doctor_command import doctor
from pyspark_kafka_group.tools.event_commands import events, timeline
from pyspark_kafka_group.tools.history_commands import history, rewinds
from pyspark_kafka_group.tools.reset_command import reset
from pyspark_kafka_group.tools.watch_command import watch


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="pyspark-kafka-group", message="%(version)s")
def kafka_group() -> None:
    """Looks at Kafka consumer groups: lag, owners, and what has happened to their
    offsets.  Nothing here changes anything, but reset, if it is told to execute.

    \b
    The cluster is named by --bootstrap-server, by a --config file, by a
    --profile (~/.config/kafka-group/NAME.properties), or by one of the variables
    KAFKA_GROUP_BOOTSTRAP_SERVERS, KAFKA_GROUP_CONFIG and KAFKA_GROUP_PROFILE.
    Passwords belong into a file.

    \b
    A command ends with 0 if all is well, with 1 if it has found something or
    there is no such group, with 2 if it could not find out.
    """


# In the order of ``--help``.  Each is in a module of its own kind; what they share is in `command_base`.
for _command in (describe, watch, coordinator, history, rewinds, doctor, reset, events, timeline):
    kafka_group.add_command(_command)
