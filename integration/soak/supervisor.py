"""Keep applications running like Kubernetes: restart each ended one from the same checkpoint."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from integration.oracles import Window
from integration.pipelines import Application, read_events

_TICK_S = 0.2

# The other processes of an application may outlive its driver this long: a source process finishes its commit (5 s)
# and leaves the group (3 s).
_ORPHAN_PATIENCE_S = 15.0

# A clean stop waits for the running batch, and a replay waits for the group.
_STOP_PATIENCE_S = 120.0

# An application that needs longer to join hangs.
_JOIN_PATIENCE_S = 150.0

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")
_NUMBER = re.compile(r"\d+")


@dataclass
class Ending:
    """The end of an application's process.

    Attributes
    ----------
    faults : list of str
        The faults of the process before its end; empty if there were none.
    text : str
        The last line of its log that names an error.
    """

    time: float
    application: str
    code: int
    faults: list[str]
    text: str

    @property
    def kind(self) -> str:
        """The text without the ids and numbers, which differ each time."""
        return _NUMBER.sub("N", _ID.sub("ID", self.text))[:300]


@dataclass
class Supervised:
    """One application under supervision.

    Attributes
    ----------
    faults : list of str
        The faults of the present process.
    under_fault : bool
        Whether a fault acts on the application.  Other faults then leave it alone.
    longest_pause_s : float
        The longest pause before the supervisor starts it again.
    stopping : bool
        Whether the present process has got a request to stop.
    held : bool
        Whether a fault will start it again, instead of the supervisor.
    """

    application: Application
    random: random.Random
    longest_pause_s: float = 15.0
    faults: list[str] = field(default_factory=list)
    under_fault: bool = False
    stopping: bool = False
    held: bool = False
    starts: int = 0
    joined: bool = False
    running: bool = False
    _started: float = 0.0
    _stop_by: float = 0.0
    _restart_at: float = 0.0
    _log_from: int = 0

    @property
    def name(self) -> str:
        return self.application.name

    @property
    def up(self) -> bool:
        """Whether it has joined the group, without a fault or a stop in progress."""
        return self.reads and not self.stopping and not self.under_fault

    @property
    def reads(self) -> bool:
        """Whether its process runs and has joined the group."""
        return self.running and self.joined

    def begin_stop(self, ask: Callable[[], object]) -> None:
        """Ask the process to stop, by calling ``ask``."""
        self.stopping = True
        self._stop_by = time.monotonic() + _STOP_PATIENCE_S
        ask()

    def start(self) -> None:
        self._log_from = self.application.log_size
        self.application.start()
        self.starts += 1
        self.faults, self.joined, self.stopping, self.running = [], False, False, True
        self._started = time.time()

    @property
    def log(self) -> str:
        """The log of the present process, or of the last one."""
        return self.application.log_since(self._log_from)

    def tick(self, *, restart: bool) -> tuple[Ending | None, list[str]]:
        """Check the process, or start it again.  Return its end, if it has just ended, and the problems."""
        problems: list[str] = []
        if not self.running:
            if restart and not self.held and time.monotonic() > self._restart_at:
                self.start()
            return None, problems
        if not self.joined:
            events = read_events(self.application.event_log)
            self.joined = self.application.has_logged_a_batch and any(
                e["event"] == "joined" and e["time"] > self._started for e in events[-200:]
            )
            if not self.joined and not self.faults and time.time() > self._started + _JOIN_PATIENCE_S:
                problems.append(f"{self.name} has not joined {_JOIN_PATIENCE_S:g} s after its start")
                self.faults.append("hung and was killed")
                self.application.log_stacks()
                self.application.kill()
        code = self.application.exit_code if self.application.started else -9
        if code is None:
            if self.stopping and time.monotonic() > self._stop_by:
                problems.append(
                    f"{self.name} did not end within {_STOP_PATIENCE_S:g} s of being asked: its log has the stacks"
                )
                self.application.log_stacks()
                self.application.kill()
                return self._ended(-9), problems
            return None, problems
        if self.application.started:
            problems += self._bury()
        return self._ended(code), problems

    def _ended(self, code: int) -> Ending:
        self.running = False
        self._restart_at = time.monotonic() + self.random.uniform(0, self.longest_pause_s)
        return Ending(time.time(), self.name, code, list(self.faults), last_error(self.log) if code else "")

    def _bury(self) -> list[str]:
        """Wait until the application's other processes have ended.  If they do not end, kill and report them."""
        deadline = time.monotonic() + _ORPHAN_PATIENCE_S
        while left := self.application.processes():
            if time.monotonic() > deadline:
                self.application.kill()
                if any("pause" in fault for fault in self.faults):
                    return []  # a suspended process cannot end
                parts = ", ".join(process.part.value for process in left)
                return [f"{self.name} has ended, and {parts} lived on for {_ORPHAN_PATIENCE_S:g} s"]
            time.sleep(_TICK_S)
        return []


def last_error(log: str) -> str:
    """Return the last line of a log that begins with an error.  If there is none, return the last line."""
    lines = [line.strip() for line in log.splitlines()]
    named = [
        line
        for line in lines
        if re.match(r"([\w.]+\.)?\w*(Error|Exception|StopIteration)\b.*", line) or line.startswith("Caused by")
    ]
    return named[-1] if named else next((line for line in reversed(lines) if line), "(the log is empty)")


class Supervisor:
    """A supervisor of all applications, with one thread for each.

    Attributes
    ----------
    endings : list of Ending
        All ends of processes, including clean ones.
    away : list of Window
        The times in which no application was a member of the group.
    problems : list of str
        The events that should not have happened.
    """

    def __init__(self, applications: Sequence[Supervised]) -> None:
        self.applications = applications
        self.endings: list[Ending] = []
        self.away: list[Window] = []
        self.problems: list[str] = []
        self._restart = True
        self._lock = threading.Lock()
        self._reading: set[str] = set()
        self._away_since = time.time()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(one,), name=f"supervisor-{one.name}", daemon=True)
            for one in applications
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop_all(self) -> None:
        """Stop all applications cleanly, restart none, and return when they have ended."""
        self._restart = False
        for one in self.applications:
            if one.running:
                one.begin_stop(one.application.begin_stop)
        deadline = time.monotonic() + 1.5 * _STOP_PATIENCE_S
        while any(one.running for one in self.applications) and time.monotonic() < deadline:
            time.sleep(_TICK_S)
        self.close()

    def close(self) -> None:
        """End the supervision, and kill all remaining processes."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _ORPHAN_PATIENCE_S)
        for one in self.applications:
            one.application.kill()

    def _run(self, one: Supervised) -> None:
        while not self._stop.wait(_TICK_S):
            try:
                ending, problems = one.tick(restart=self._restart)
            except Exception as problem:  # a defect here must not look like a defect of an application
                self.problems.append(f"supervision of {one.name} failed: {problem!r}")
                return
            self.problems += problems
            self._note(one)
            if ending is not None:
                self.endings.append(ending)

    def _note(self, one: Supervised) -> None:
        with self._lock:
            before = len(self._reading)
            if one.reads:
                self._reading.add(one.name)
            else:
                self._reading.discard(one.name)
            if before and not self._reading:
                self._away_since = time.time()
            elif self._reading and not before:
                self.away.append(Window(self._away_since, time.time()))
