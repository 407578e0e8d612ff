"""The processes of a session, which a fault can hit."""

from __future__ import annotations

import subprocess
import sys

from integration.processes import Part, session

# The leader of a session with two children.  One has ended, and the leader has not waited for it.  The other has its
# own process group, as Spark's Python daemon does.
_LEADER = """
import subprocess, sys
ended = subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE)
ended.stdout.read()
command = [sys.executable, "-S", "-c", "print(flush=True); input()", "python_streaming_source_runner"]
subprocess.run(command, process_group=0, check=False)
"""


def test_a_session_is_its_leader_and_whoever_lives_in_it_in_any_process_group() -> None:
    arguments = [sys.executable, "-S", "-c", _LEADER]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        found = session(leader.pid)
        leader.communicate("\n", timeout=30)
    assert sorted(process.part.value for process in found) == [Part.DRIVER.value, Part.SOURCE.value]
    assert leader.pid in [process.pid for process in found]
    assert session(leader.pid) == []
