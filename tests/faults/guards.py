"""Faults in what keeps a query from continuing in silence, and options from doing what their owner has not allowed."""

from __future__ import annotations

from tests.faults.fault import Fault

_PERMISSIONS = "cluster/properties/permissions.py"
_TEST_PERMISSIONS = "tests/cluster/properties/test_permissions.py"
_START_REQUESTS, _TEST_START_REQUESTS = "coordinator/start_requests.py", "tests/coordinator/test_start_requests.py"
_LAKE, _TEST_LAKE = "stores/lake_table.py", "tests/stores/test_lake_table.py"
_LIMITS, _TEST_ENGINE = "connector/stream_reader_42.py", "tests/connector/test_engine_copy.py"

FAULTS = [
    Fault(
        "the limits of an engine with its own PySpark are ignored",
        _LIMITS,
        'getattr(limit, "max_rows", _NO_LIMIT)',
        "limit.max_rows if isinstance(limit, ReadMaxRows) else _NO_LIMIT",
        _TEST_ENGINE,
    ),
    Fault(
        "a trigger that runs once is not seen on an engine with its own PySpark",
        _LIMITS,
        'if type(limit).__name__ == "ReadAllAvailable":',
        "if str(type(limit)) == \"<class 'pyspark.sql.streaming.datasource.ReadAllAvailable'>\":",
        _TEST_ENGINE,
    ),
    Fault(
        "an engine with its own PySpark does not see availableNow",
        _LIMITS,
        "if _ENGINE in sys.modules:",
        "if False:",
        _TEST_ENGINE,
    ),
    Fault(
        "the schemas of an engine with its own PySpark are not converted",
        "connector/columns/schema.py",
        "        return t.StructType.fromJson(schema.jsonValue())\n",
        "        return schema\n",
        _TEST_ENGINE,
    ),
    Fault(
        "a path that leaves the allowed folder with .. is allowed",
        _PERMISSIONS,
        'path.is_absolute() and ".." not in path.parts and path.is_relative_to(entry)',
        "path.is_absolute() and path.is_relative_to(entry)",
        _TEST_PERMISSIONS,
    ),
    Fault(
        "a file whose name begins like the allowed folder is allowed",
        _PERMISSIONS,
        "path.is_relative_to(entry)",
        "target.startswith(entry)",
        _TEST_PERMISSIONS,
    ),
    Fault(
        "a URL whose path begins like the allowed one is allowed",
        _PERMISSIONS,
        'path.startswith(f"{folder}/")',
        "path.startswith(folder)",
        _TEST_PERMISSIONS,
    ),
    Fault(
        "a URL of another host is allowed",
        _PERMISSIONS,
        "same = (asked.scheme.lower(), asked.netloc.lower()) == (entry.scheme.lower(), entry.netloc.lower())",
        "same = asked.scheme.lower() == entry.scheme.lower()",
        _TEST_PERMISSIONS,
    ),
    Fault(
        "the owner of the command line may load libraries through options",
        _PERMISSIONS,
        "    if kind is Kind.NEVER:\n",
        "    if kind is Kind.NEVER and not _trusted:\n",
        _TEST_PERMISSIONS,
    ),
    Fault(
        "a cloud's tokens go to any broker without encryption",
        _PERMISSIONS,
        "return encrypted and (servers is None",
        "return (servers is None",
        _TEST_PERMISSIONS,
    ),
    Fault(
        "special characters of the shell are allowed in a principal",
        _PERMISSIONS,
        '_IN_A_COMMAND = ("sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.service.name")',
        '_IN_A_COMMAND = ("sasl.kerberos.keytab", "sasl.kerberos.service.name")',
        _TEST_PERMISSIONS,
    ),
    Fault(
        "Spark gets the running batch for another one",
        "connector/query/query.py",
        "            if batch is not None and batch.end == logged:\n                return batch.running\n",
        "            if batch is not None:\n                return batch.running\n",
        "tests/connector/query/test_query.py",
    ),
    Fault(
        "a run with availableNow whose member has left ends well",
        "connector/query/query.py",
        "            if self._has_target:\n                self.check_running()",
        "            if False:\n                self.check_running()",
        "tests/connector/query/test_query.py",
    ),
    Fault(
        "a query whose deleted topic may not be described continues in silence",
        _START_REQUESTS,
        "                self._loop.fail_later(problem)\n                return\n",
        "                return\n",
        _TEST_START_REQUESTS,
    ),
    Fault(
        "deleted topics are asked for each time",
        _START_REQUESTS,
        "            self._ask_for_deleted_at = self._clock() + _DELETED_PAUSE_S\n",
        "",
        _TEST_START_REQUESTS,
    ),
    Fault(
        "all partitions wait while a deleted topic is not asked for",
        _START_REQUESTS,
        "return {tp: epoch for tp, epoch in wanted.items() if tp not in deleted}",
        "return {}",
        _TEST_START_REQUESTS,
    ),
    Fault(
        "an unexpected error of a request leaves the query waiting",
        _START_REQUESTS,
        ".add_done_callback(unexpected(doing, self._loop.fail_later))",
        "",
        _TEST_START_REQUESTS,
    ),
    Fault(
        "a thread that was closed counts as an unexpected error",
        "cluster/daemon_executor.py",
        "        if problem is not None and not isinstance(problem, ClosedError):\n            fail(",
        "        if problem is not None:\n            fail(",
        "tests/cluster/test_daemon_executor.py",
    ),
    Fault(
        "producers are dropped and stay open",
        "cluster/committer.py",
        "            self._caller.post(_close, producer)\n",
        "",
        "tests/cluster/test_committer.py",
    ),
    Fault(
        "a name server that does not answer is an unknown name",
        "cluster/request_errors.py",
        "isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_NODATA)",
        "isinstance(cause, socket.gaierror)",
        "tests/cluster/test_unreachable.py",
    ),
    Fault(
        "the first request never gets more time",
        "cluster/group_offsets.py",
        "attempt_s = max(_ATTEMPT_S, min(2 * attempt_s, deadline.left_s))",
        "attempt_s = _ATTEMPT_S",
        "tests/cluster/test_unreachable.py",
    ),
    Fault(
        "an empty offset is taken for one of Spark's own source",
        "offsets/batch_offset.py",
        "        and bool(document)\n",
        "",
        "tests/offsets/test_batch_offset.py",
    ),
    Fault(
        "each attempt of a long wait is logged",
        "offsets/wait_notice.py",
        "        self._next_s = waited_s + AGAIN_S\n",
        "",
        "tests/offsets/test_wait_notice.py",
    ),
    Fault(
        "rows of two topics of one name come into one lake table",
        _LAKE,
        "if known.get(topic, found) != found:",
        "if False:",
        _TEST_LAKE,
    ),
    Fault(
        "of two applications that note a new topic at once, both write",
        _LAKE,
        "for _ in range(2):  #",
        "for _ in range(1):  #",
        _TEST_LAKE,
    ),
    Fault(
        "a second write of a batch skips rows in silence",
        _LAKE,
        "                if again:\n",
        "                if False:\n",
        _TEST_LAKE,
    ),
]
