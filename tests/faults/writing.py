"""Faults in the sink, and in the tables that keep offsets beside the rows."""

from __future__ import annotations

from tests.faults.fault import Fault

_PRODUCER = "connector/writing/direct_producer.py"
_SENDER = "connector/writing/batch_sender.py"
_REQUESTS = "connector/writing/producer_requests.py"
_TEST_PRODUCER = "tests/connector/writing/test_direct_producer.py::"
_TRANSACTIONS = "connector/writing/batch_transactions.py"

FAULTS = [
    Fault(
        "partitions are not added to the transaction if one of them is in it already",
        _PRODUCER,
        "if transactional_id is None or self._in_transaction.issuperset(partitions):",
        "if transactional_id is None or not self._in_transaction.isdisjoint(partitions):",
        _TEST_PRODUCER + "test_partitions_that_get_their_first_records_later_are_added_then",
    ),
    Fault(
        "rows of a partition that vanished are kept",
        _PRODUCER,
        "if last >= count:",
        "if last > count:",
        _TEST_PRODUCER + "test_rows_of_a_partition_that_a_topic_has_no_more_are_an_error",
    ),
    Fault(
        "a connection whose login has expired is used again",
        _SENDER,
        "found.is_idle() and not found.good_until.passed:",
        "found.is_idle():",
        _TEST_PRODUCER + "test_a_connection_whose_login_ends_soon_is_replaced",
    ),
    Fault(
        "an answer that leaves out some partitions is accepted",
        _SENDER,
        "if any(partition.tp not in answer.errors for partition in broker.sent):",
        "if all(partition.tp not in answer.errors for partition in broker.sent):",
        _TEST_PRODUCER + "test_an_answer_without_one_of_the_partitions_is_asked_for_again",
    ),
    Fault(
        "a partition that shares the fate of others is reported instead of the cause",
        _REQUESTS,
        "key=lambda tp: found[tp] == _SAME_FATE)",
        "key=lambda tp: found[tp] != _SAME_FATE)",
        _TEST_PRODUCER + "test_the_partition_that_was_refused_is_named_and_not_those_of_the_same_request",
    ),
    Fault(
        "a coordinator that does not answer is asked for ever",
        _REQUESTS,
        "        except (OSError, ProtocolError):\n            self._coordinator = None\n            raise\n",
        "        except (OSError, ProtocolError):\n            raise\n",
        _TEST_PRODUCER + "test_a_coordinator_that_is_gone_is_looked_for_again",
    ),
    Fault(
        "decided transactions whose state is unknown are aborted",
        _TRANSACTIONS,
        "if state not in (_OPEN, _BEGUN) or producer == tuple(now):",
        "if producer == tuple(now):",
        "tests/connector/writing/test_batch_transactions.py",
    ),
    Fault(
        "a task that has begun and sent nothing is not fenced after a failed batch",
        _TRANSACTIONS,
        "if state not in (_OPEN, _BEGUN) or producer == tuple(now):",
        "if state != _OPEN or producer == tuple(now):",
        "tests/connector/writing/test_batch_transactions.py",
    ),
    Fault(
        "a missing row is not noticed if the group has finished one record",
        "stores/offset_rows.py",
        "is not None and one.begun}",
        "is not None and one.finished > 1}",
        "tests/stores/test_task_writes.py",
    ),
    Fault(
        "an offset that is set lower is refused by the next write",
        "stores/offset_table.py",
        "                self._seen.pop(tp, None)\n                self._rows.lock",
        "                self._rows.lock",
        "tests/stores/test_offset_table.py",
    ),
    Fault(
        "the note that lost records were read again is left out",
        "stores/lake_table.py",
        "if self._lost and not result.written:",
        "if False:",
        "tests/stores/test_lake_table.py",
    ),
    Fault(
        "two groups may write if the table does not know the group of a row",
        "stores/offset_rows.py",
        "if None not in (found.group_id, planned.group_id) and found.group_id != planned.group_id:",
        "if found.group_id != planned.group_id:",
        "tests/stores/test_task_writes.py tests/stores/test_offset_table.py",
    ),
    Fault(
        "a write without a group forgets the group of a row",
        "stores/offset_rows.py",
        'group_id=sa.func.coalesce(sa.bindparam("of_group", type_=sa.Text), c.group_id),',
        'group_id=sa.bindparam("of_group", type_=sa.Text),',
        "tests/stores/test_task_writes.py",
    ),
    Fault(
        "take_over gives away the offsets of all topics",
        "stores/offset_rows.py",
        """        condition = (table.c.consumer == self.consumer, table.c.topic == topic)
        return connection.execute(table.update()""",
        """        condition = (table.c.consumer == self.consumer,)
        return connection.execute(table.update()""",
        "tests/stores/test_task_writes.py",
    ),
    Fault(
        "a batch whose write has failed cannot be written again",
        "stores/query_run.py",
        "                del _written[target]  # the program may try again\n",
        "                pass\n",
        "tests/stores/test_offset_table.py",
    ),
    Fault(
        "a refused second write lets a third one write",
        "stores/query_run.py",
        "if before != this and _written.get(target) == this:",
        "if _written.get(target) == this:",
        "tests/stores/test_offset_table.py",
    ),
    Fault(
        "the sink does not learn the group of a batch",
        "connector/query/batch_report.py",
        "._replace(group_id=group_id)",
        "",
        "tests/connector/query/test_batch_report.py tests/connector/query/test_query.py",
    ),
    Fault(
        "a query with its own offsets names its group to the sink",
        "connector/query/query.py",
        "self._group_id = settings.group_id if settings.commits else None",
        "self._group_id = settings.group_id",
        "tests/connector/query/test_query.py",
    ),
    Fault(
        "ids that were fenced are fenced after each batch",
        _TRANSACTIONS,
        "return [name for name in names if found[name].timeout_ms != FENCED_MS]",
        "return names",
        "tests/connector/writing/test_batch_transactions.py",
    ),
    Fault(
        "a later batch that has begun and sent nothing keeps its transactional id",
        _TRANSACTIONS,
        "if state not in (_OPEN, _BEGUN) or producer == tuple(now):",
        "if state != _OPEN or producer == tuple(now):",
        "tests/connector/writing/test_batch_transactions.py",
    ),
    Fault(
        "the limit of a topic raises that of the writer",
        "connector/writing/_record_writer.c",
        "batch_bytes = batch_bytes < writer->batch_bytes ? batch_bytes : writer->batch_bytes;",
        "batch_bytes = batch_bytes;",
        "tests/connector/writing/test_record_writer.py",
    ),
    Fault(
        "rows with a key move the rows without one to another partition",
        "connector/writing/_record_writer.c",
        "if (partition == topic->sticky && key == NULL) {",
        "if (partition == topic->sticky) {",
        "tests/connector/writing/test_record_writer.py",
    ),
    Fault(
        "after the first 16 kB, each row without a key goes to another partition",
        "connector/writing/_record_writer.c",
        "        topic->sticky_bytes = 0;\n",
        "",
        "tests/connector/writing/test_record_writer.py",
    ),
    Fault(
        "the header of a batch does not count for the limit of a topic",
        "connector/writing/record_writer.py",
        "max(1, batch_bytes - HEADER_BYTES))",
        "max(1, batch_bytes))",
        "tests/connector/writing/test_record_writer.py tests/connector/writing/test_direct_producer.py",
    ),
    Fault(
        "rows in the queue of a partition that vanished are kept",
        _PRODUCER,
        "last = max(self._writer.partitions(name) - 1, self._sender.last_partition(name))",
        "last = self._writer.partitions(name) - 1",
        "tests/connector/writing/test_direct_producer.py",
    ),
]
