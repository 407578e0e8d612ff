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
        "if self._writer.partitions(name) > count:",
        "if self._writer.partitions(name) > count + 1:",
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
        "if planned is not None and planned.begun:",
        "if planned is not None and planned.finished > 1:",
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
]
