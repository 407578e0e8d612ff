"""Draw ``docs/pictures/demo.svg``: what ``kafka-group demo --applications 2`` shows in a terminal, as a short film.

Run it with the project's Python, on a machine that is otherwise idle.  It runs the demo and takes two minutes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "demo.svg"
COMMAND = "kafka-group demo --applications 2"
COLUMNS, ROWS = 80, 24
RUNS_S, FRAME_S = 120.0, 2.5
LETTER, LINE, MARGIN = 8.4, 19, 16

_COLORS = {"etl-1": "#7ee787", "etl-2": "#ffa657"}
_STYLE = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;"
    "white-space:pre}.dim{fill:#8b949e}"
)


def recorded() -> str:
    """Return the output of the demo in a terminal."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark_kafka_group.tools", *COMMAND.split()[1:]])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    output, ends, stopping = b"", time.monotonic() + RUNS_S, False
    while True:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                output += os.read(terminal, 65536)
            except OSError:  # the demo has closed its side
                break
        if time.monotonic() > ends and not stopping:
            os.write(terminal, b"\x03")
            stopping = True
    os.waitpid(process, 0)
    return output.decode()


def screens(output: str) -> list[list[str]]:
    """Return the screens on which the owners of partitions differ from the screen before."""
    found: list[list[str]] = []
    before: list[str] = []
    for screen in output.split("\x1b[H")[1:]:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
        lines = [line.rstrip() for line in text.splitlines() if not line.startswith("^C")]
        lines = lines[: max((n + 1 for n, line in enumerate(lines) if line.startswith("orders ")), default=0)]
        owners = sorted(line.split()[1] + line.split()[-1] for line in lines if line.startswith("orders "))
        if owners and owners != before:
            found.append(lines)
        elif owners:
            found[-1] = lines  # the newest one of these owners
        before = owners
    return found


def svg(frames: list[list[str]]) -> str:
    """Return a picture that shows the frames one after the other, and stays on the last one where nothing moves."""
    width, height = MARGIN * 2 + LETTER * COLUMNS, MARGIN * 2 + LINE * (max(map(len, frames)) + 2)
    total, share = FRAME_S * len(frames), 100 / len(frames)
    style = f"{_STYLE}@keyframes f{{0%,{share:.2f}%{{opacity:1}}{share + 0.01:.2f}%,100%{{opacity:0}}}}"
    drawn = ""
    for number, frame in enumerate(frames):
        last = number == len(frames) - 1
        style += f".f{number}{{opacity:{int(last)};animation:f {total}s {number * FRAME_S - total}s infinite}}"
        drawn += f'<g class="f{number}">{"".join(_line(row + 2, line) for row, line in enumerate(frame))}</g>\n'
    style += "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">\n'
        f"<title>{COMMAND}</title>\n<style>{style}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{_line(0, f"$ {COMMAND}")}\n{drawn}</svg>\n'
    )


def _line(row: int, line: str) -> str:
    if not line:
        return ""
    owner = next((color for name, color in _COLORS.items() if f"{name}-" in line), None)
    look = f' style="fill:{owner}"' if owner else ' class="dim"' if line.startswith(("TOPIC", "$")) else ""
    return f'<text x="{MARGIN}" y="{MARGIN + LINE * (row + 0.8):.0f}"{look}>{escape(line)}</text>'


if __name__ == "__main__":
    source = Path(sys.argv[1]).read_text(encoding="utf-8") if sys.argv[1:] else recorded()
    PICTURE.write_text(svg(screens(source)), encoding="utf-8")
