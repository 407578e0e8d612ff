"""Connections to the target database: supported databases, settings of a transaction, and lock errors.

Runs in the driver and in executors' Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores.errors import CopyError, DatabaseError, PartitionsLockedError

if TYPE_CHECKING:
    import sqlalchemy as sa

_PSYCOPG = "postgresql+psycopg"
# The longest time to connect.  libpq has no limit of its own, and an unreachable machine does not answer for minutes.
_CONNECT_S = 30

_LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's name for a wait that lock_timeout has ended
_IDLE = "25P03"  # and for a transaction that idle_in_transaction_session_timeout has ended
_SQLITE_BUSY = 5  # the primary result code; extended ones have it in their lowest byte

# Words in the versions of other databases that call themselves PostgreSQL.
_OTHERS = ("-yb-", "redshift", "greenplum", "cockroach", "materialize", "crate", "questdb", "dsql")

# PostgreSQL probes a silent client after this many seconds, and drops it after three unanswered probes.  By default it
# waits two hours, and a lost machine would keep its locks for that time.
_KEEPALIVE_S = 20

# The settings of a transaction, in one round trip.  Deliberate: a role whose synchronous_commit is below "on" could
# lose rows in a crash of the server or with its standby, although Spark and Kafka consider them written
# (`test_a_commit_waits_for_the_disk_whatever_the_role_says`).  The time zone decides the value of a timestamp without a
# zone, so all executors need the same one (`test_a_timestamp_without_a_zone_is_utc_on_all_executors`).
_SETTINGS = """
    SELECT set_config('lock_timeout', :lock, true),
           set_config('idle_in_transaction_session_timeout', :idle, true),
           set_config('synchronous_commit',
                      CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END,
                      true),
           set_config('TimeZone', 'UTC', true),
           set_config('tcp_keepalives_idle', :keepalive, false),
           set_config('tcp_keepalives_interval', :keepalive, false),
           set_config('tcp_keepalives_count', '3', false)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """The target database.  Sent to executors.

    Attributes
    ----------
    url : str
        SQLAlchemy's URL, with the password.  ``repr`` and errors do not show it.
    lock_timeout_s : float
        How long to wait for another writer of the same partitions, in seconds.
    idle_timeout_s : float
        After how many seconds PostgreSQL ends a transaction whose client does nothing.
    """

    url: str = field(repr=False)
    lock_timeout_s: float
    idle_timeout_s: float

    @classmethod
    def checked(cls, url: str, *, lock_timeout_s: float, idle_timeout_s: float) -> Database:
        """Return the database of a user's URL.

        Raises
        ------
        ConfigurationError
            If the extra ``sql`` is missing, or the URL names an unsupported database.
        """
        _require("sqlalchemy")
        _require("pandas")  # Spark needs it for mapInArrow
        import sqlalchemy as sa

        if url.startswith("postgres://"):  # some providers write this, but SQLAlchemy does not accept it
            url = url.replace("postgres", "postgresql", 1)
        try:
            found = sa.engine.make_url(url)
        except (sa.exc.ArgumentError, ValueError):
            raise ConfigurationError(
                "OffsetTable: the URL is invalid. Write postgresql://user:password@host/database, "
                "or sqlite:////absolute/path. Encode an @ in the password as %40."
            ) from None  # the text of the cause may contain the password
        if found.drivername == "postgresql":
            found = found.set(drivername=_PSYCOPG)
        if found.drivername == "sqlite" and found.database in (None, "", ":memory:"):
            raise ConfigurationError(
                "OffsetTable: the executors cannot reach an SQLite database in memory. Use a file."
            )
        if found.drivername not in (_PSYCOPG, "sqlite"):
            raise ConfigurationError(
                f"OffsetTable: {found.drivername!r} is not supported. Its locks were not tested with two writers. Use "
                f"postgresql (with psycopg 3) or sqlite."
            )
        if found.drivername == _PSYCOPG:
            _require("psycopg")
            if "@" in f"{found.host}{found.database}":  # the rest of a password, and errors show the host
                raise ConfigurationError(
                    "OffsetTable: the host or the database in the URL has an @. Encode an @ in the password as %40."
                )
        return cls(
            url=found.render_as_string(hide_password=False),
            lock_timeout_s=lock_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction; commit it at the end, or roll it back after an error.

        Deliberate: no pool.  A connection costs a few milliseconds.  Idle connections of all workers of all
        applications would count against the limit of the server.

        Raises
        ------
        PartitionsLockedError
            If another writer does not end in time.
        DatabaseError
            If the database cannot be reached, or ends the transaction of a client that does nothing.
        """
        _require("sqlalchemy")
        import sqlalchemy as sa

        engine = self._engine()
        try:
            with self._limits_named(), self._connected(engine) as connection, connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(
                        sa.text(_SETTINGS),
                        {
                            "lock": f"{_milliseconds(self.lock_timeout_s)}ms",
                            "idle": f"{_milliseconds(self.idle_timeout_s)}ms",
                            "keepalive": str(_KEEPALIVE_S),
                        },
                    )
                yield connection
        finally:
            engine.dispose()

    def _connected(self, engine: sa.Engine) -> sa.Connection:
        import sqlalchemy as sa

        try:
            return engine.connect()
        except sa.exc.DBAPIError as e:
            url = engine.url
            address = sa.URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database)
            lines = str(e.orig).strip().splitlines() or [type(e.orig).__name__]
            # Deliberate: from None.  The traces of SQLAlchemy and psycopg would bury this sentence.
            raise DatabaseError(
                f"OffsetTable: cannot connect to {address}: {lines[0].strip().rstrip('.')}. Check the URL, and that "
                f"the driver and all executors reach the database."
            ) from None

    @contextmanager
    def _limits_named(self) -> Iterator[None]:
        """Explain the error of a timeout for locks, or for a client that does nothing."""
        import sqlalchemy as sa

        try:
            yield
        except (sa.exc.DBAPIError, CopyError) as e:
            if _state(e) == _IDLE:
                raise DatabaseError(
                    f"OffsetTable: a task did nothing in its transaction for {self.idle_timeout_s:g} s "
                    f"(idle_timeout_s), so PostgreSQL ended it. Nothing was written, and the batch can run again. If "
                    f"the task was not suspended, and the function that writes rows takes longer than that between two "
                    f"statements, raise idle_timeout_s."
                ) from e
            if not _is_lock(e):
                raise
            raise PartitionsLockedError(
                f"OffsetTable: another writer has held a lock for {self.lock_timeout_s:g} s (lock_timeout_s). Nothing "
                f"was written, and the batch can run again. If that writer is suspended or lost, end it. In "
                f"PostgreSQL, pg_stat_activity shows its session, and pg_terminate_backend(pid) ends it. It may also "
                f"be another attempt of the same task that takes longer: then raise lock_timeout_s, and leave "
                f"spark.speculation off."
            ) from e

    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa

        if self.url.startswith("sqlite"):
            engine = sa.create_engine(
                self.url,
                poolclass=sa.pool.NullPool,
                hide_parameters=True,
                connect_args={"timeout": self.lock_timeout_s},
            )
            sa.event.listen(engine, "connect", _let_begin_be_ours)
            sa.event.listen(engine, "begin", _begin_immediate)
            return engine
        # Deliberate: read committed, regardless of the role's default.  A writer that has waited for a row must see the
        # offset of the writer before it.  With a stricter level it would fail.
        return sa.create_engine(
            self.url,
            poolclass=sa.pool.NullPool,
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            # Without a threshold, because a pooler may give the statement's name to another client.
            connect_args={"prepare_threshold": None, **_limit(self.url)},
        )


def _require(package: str) -> None:
    """Raise if a package of the extra ``sql`` is missing: on the driver at once, on an executor when it writes."""
    if find_spec(package) is None:
        raise ConfigurationError(
            f"The offset table needs the package {package!r} on the driver and on all executors. It is missing from "
            f"{sys.executable}. Install it there: pip install 'pyspark-kafka-group[sql]'"
        )


def _limit(url: str) -> dict[str, int]:
    """Return the limit for connecting, unless the user has set one."""
    from sqlalchemy.engine import make_url

    return {} if "connect_timeout" in make_url(url).query else {"connect_timeout": _CONNECT_S}


def _is_lock(error: BaseException) -> bool:
    """Tell whether a wait for a lock has ended."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return _state(error) == _LOCK_NOT_AVAILABLE or (code is not None and code & 0xFF == _SQLITE_BUSY)


def _state(error: BaseException) -> str | None:
    """Return PostgreSQL's code of an error."""
    return getattr(getattr(error, "orig", error), "sqlstate", None)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # 0 would mean no limit


def check_server(connection: sa.Connection) -> None:
    """Refuse other databases that use PostgreSQL's protocol.

    Raises
    ------
    ConfigurationError
        If the server is one of them.
    """
    if connection.dialect.name != "postgresql":
        return
    version = str(connection.exec_driver_sql("SELECT version()").scalar_one())
    if not version.startswith("PostgreSQL ") or any(name in version.lower() for name in _OTHERS):
        raise ConfigurationError(
            f"OffsetTable: the server is not PostgreSQL ({version.partition(' on ')[0]}). Its locks were not tested "
            f"with two writers. Use PostgreSQL or SQLite."
        )


def _let_begin_be_ours(connection: Any, _record: Any) -> None:
    """Prevent Python's sqlite3 from starting transactions: it would start them only with the first write."""
    connection.isolation_level = None


def _begin_immediate(connection: sa.Connection) -> None:
    """Lock the database before the first read: SQLite has no row locks."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
