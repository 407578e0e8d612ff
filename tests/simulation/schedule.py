"""Draws random schedules from seeds, and shrinks failing ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from tests.simulation.shell import ShellQuery, shell
from tests.simulation.violation import Violation
from tests.simulation.world import Action, Config, World

PER_QUERY = {
    "engine": 24,
    "batch": 6,
    "tick": 8,
    "poll": 6,
    "info": 8,
    "commit": 8,
    "hand_over": 3,
    "retry": 2,
    "start": 3,
}
PRODUCE = 14
CLUSTER = {"poll_all": 6, "tick_all": 10, "reshuffle": 4, "decide": 2, "add": 1}
LOGS = {"reset": 1, "retention": 2}
CHANGES = {"recreate": 1, "truncate": 2, "go_back": 2}
LAPSES = 8
ELECTIONS = 2
FOREIGN = 40
FAULTS: dict[str, dict[str, int]] = {
    "none": {"exit": 1},
    "commits": {"exit": 1, "break": 6},
    "deadlines": {"expire": 16, "break": 1},
    "evictions": {"evict": 4, "break": 1},
    "crashes": {"crash": 2, "restart": 4, "evict": 2, "exit": 1},
    "resets": {"crash": 1, "restart": 3, "exit": 1},
    "logs": {"restart": 2, "exit": 1, "break": 2},
    "subscriptions": {"subscribe": 4, "restart": 2, "exit": 1, "break": 1},
    "checkpoints": {"restart": 3, "uncommit": 2, "restore": 4, "evict": 1},
    "runs": {"break": 1},
    "assigned": {"restart": 2, "exit": 1, "break": 2},
    "all": {"crash": 1, "restart": 2, "evict": 2, "expire": 10, "exit": 1, "break": 3},
}
"""The faults of a run.  Only ``none`` and ``commits`` are calm: with these, a query may process no record twice."""

RARE: dict[int, tuple[str, dict[str, int]]] = {
    5: ("markers", {"hide": 4, "unmark": 10, "crash": 2, "restart": 3, "evict": 2}),
    9: ("another program", {"crash": 1, "restart": 2, "evict": 1, "expire": 4, "exit": 1, "break": 2}),
    13: ("two runs", {"twin": 12, "restart": 1, "crash": 1, "evict": 1, "exit": 1, "break": 1, "expire": 2}),
}
"""Faults of a few seeds.  The key is the remainder of the seed divided by :data:`RARE_EVERY`.

A seed that is divisible by 5 also runs with the real shell."""

RARE_EVERY = 20

FAULTS_OF = {**FAULTS, **dict(RARE.values())}

_QUERIES = [("a", "a"), ("a", "a"), ("a", "a", "a"), ("ab", "ab"), ("a", "b"), ("ab", "a"), ("ab", "b", "a"), ("a",)]
CONTAINS = {"batch": ("engine",), "tick": ("info", "commit", "poll")}
SLOW = ("", "", "", "engine", "plan", "info", "commit", "poll")
"""The step in which one query may be slow for a whole run, while the others get far ahead."""

OWN = ("", "", "plain", "run", "dynamic")
"""Options that one query may have and the others have not."""

_WEIGHTED: dict[tuple[object, ...], tuple[list[tuple[str, int]], list[int]]] = {}


def config_of(rng: random.Random, rare: str | None = None) -> tuple[Config, str]:
    """Draw a configuration.  Small ones are frequent, because they find most violations."""
    faults = rare or rng.choice(list(FAULTS))
    queries = rng.choice(_QUERIES) if rng.random() < 0.97 else ("ab", "ab", "a", "b")
    most = 1 if rng.random() < 0.5 else 3
    if faults == "markers":
        queries = rng.choice(_QUERIES[:3])  # queries that leave ranges to each other
    topics = tuple(rng.randint(1, most) for _ in range(len({letter for q in queries for letter in q})))
    config = Config(
        protocol=rng.choice(("consumer", "classic")),
        topics=topics,
        queries=queries,
        records=rng.randint(0, 2),
        latest=rng.random() < 0.3,
        transactions=rng.random() < 0.8,
        known=rng.random() < 0.5,
        static=rng.random() < 0.2,
        on_rewind=rng.choice(("checkpoint", "group")) if faults in ("resets", "all") else "fail",
        asks=faults in ("resets", "all") and rng.random() < 0.4,
        log_changes=faults == "logs",
        forgets=faults == "logs" and rng.random() < 0.5,
        fails=faults == "logs" and rng.random() < 0.3,
        replaces=rng.random() < 0.5,
        available_now=faults == "runs",
        slow=tuple(rng.choice(SLOW) for _ in queries),
        calm=faults in ("none", "commits"),
    )
    if rng.random() < 0.3:
        config = config._replace(own=tuple(rng.choice(OWN) for _ in config.own))
    if faults == "another program":
        config = config._replace(on_rewind=rng.choice(("checkpoint", "group")))  # see `Foreigner`
    if config.asks and config.on_rewind == "group" and config.known:
        config = config._replace(intended=True)
    if faults == "two runs":
        config = config._replace(static=False, transactions=rng.random() < 0.5)
    if faults == "assigned":
        on_rewind = rng.choice(("checkpoint", "group"))
        config = config._replace(protocol="assign", queries=config.queries[:1], slow=config.slow[:1], static=False)
        topics = config.topics[: len(config.queries[0])]
        config = config._replace(transactions=False, on_rewind=on_rewind, known=True, latest=False, topics=topics)
    return config, faults


def actions_of(rng: random.Random, config: Config, faults: str) -> list[Action]:
    """Draw the actions of one run."""
    slow = config.slow
    partitions = sum(config.topics)
    plain = not config.transactions or "plain" in config.own[: len(slow)]
    key = (slow, partitions, faults, plain)
    if key not in _WEIGHTED:
        kinds = [((kind, n), w) for n in range(len(slow)) for kind, w in {**PER_QUERY, **FAULTS_OF[faults]}.items()]
        kinds = [((kind, n), 1 if slow[n] in (kind, *CONTAINS.get(kind, ())) else w) for (kind, n), w in kinds]
        kinds += [(("produce", n), PRODUCE) for n in range(partitions)]
        kinds += [((kind, 0), w) for kind, w in CLUSTER.items()]
        if faults in ("crashes", "all", "markers"):
            often = 10 if faults == "markers" else 2
            kinds += [((kind, n), often) for n in range(len(slow)) for kind in ("succeed", "relapse")]
        if faults in ("crashes", "deadlines", "markers") and len(slow) > 2:
            kinds += [(("pass_on", n), 6) for n in range(len(slow))]
        if plain and "break" in FAULTS_OF[faults]:
            kinds += [(("overtake", n), 4) for n in range(len(slow))]
        if faults == "another program":
            kinds.append((("foreign", 0), FOREIGN))
        if faults in ("evictions", "crashes", "logs"):
            kinds += [(("lead", n), ELECTIONS) for n in range(partitions)]
        if faults == "logs":
            kinds += [((kind, n), w) for n in range(partitions) for kind, w in CHANGES.items()]
            kinds += [(("lapse", n), LAPSES) for n in range(len(slow))]
        if faults in ("resets", "all"):
            kinds += [((kind, n), w) for n in range(partitions) for kind, w in LOGS.items()]
        if faults == "assigned":
            kinds += [((kind, n), 2) for n in range(partitions) for kind in ("disturb", "retention")]
        _WEIGHTED[key] = [k for k, _ in kinds], list(accumulate(w for _, w in kinds))
    choices, weights = _WEIGHTED[key]
    length = rng.randint(20, 80)
    drawn = rng.choices(choices, cum_weights=weights, k=length)
    args = rng.randbytes(length)
    begin = [Action("start", n) for n in range(1 + rng.randrange(len(slow)))]
    return begin + [Action(kind, who, arg & 15) for (kind, who), arg in zip(drawn, args, strict=True)]


def from_seed(seed: int) -> tuple[Config, list[Action]]:
    """Return the run of ``seed``."""
    rng = random.Random(seed)
    rare, _ = RARE.get(seed % RARE_EVERY, (None, {}))
    config, faults = config_of(rng, rare)
    return config, actions_of(rng, config, faults)


@contextmanager
def _world(config: Config, *, real_shell: bool, story: list[str] | None = None) -> Iterator[World]:
    if not real_shell:
        yield World(config, story=story)
        return
    with shell():
        world = World(config, story=story, make=ShellQuery)
        try:
            yield world
        finally:
            for query in world.queries:
                query.drop()


def check(config: Config, actions: Sequence[Action], *, real_shell: bool = False) -> Violation | None:
    """Run a schedule, and return the violation, if any.

    Parameters
    ----------
    config, actions
        The run.
    real_shell : bool
        Whether processes run the real shell as well as the real state machine.
    """
    try:
        with _world(config, real_shell=real_shell) as world:
            world.run(actions)
    except Violation as found:
        return found
    return None


def shrink(
    config: Config, actions: Sequence[Action], kind: str, *, real_shell: bool = False
) -> tuple[Config, list[Action]]:
    """Return a smaller run that violates the same invariant, and that needs each of its actions."""

    def fails(config: Config, actions: Sequence[Action]) -> bool:
        found = check(config, actions, real_shell=real_shell)
        return found is not None and found.kind == kind

    left = list(actions)
    size = len(left) // 2
    while size:
        at = 0
        while at < len(left):
            without = left[:at] + left[at + size :]
            if fails(config, without):
                left = without
            else:
                at += size
        size = size // 2 if size > 1 else (1 if _simplify(config, left, fails) else 0)
    for simpler in _simpler(config):
        if fails(simpler, left):
            return shrink(simpler, left, kind, real_shell=real_shell)
    return config, left


def _simplify(config: Config, left: list[Action], fails: Callable[[Config, Sequence[Action]], bool]) -> bool:
    """Set each argument to 0 if the run still fails with it.  Return whether any has changed."""
    changed = False
    for at, action in enumerate(left):
        if action.arg:
            tried = [*left[:at], action._replace(arg=0), *left[at + 1 :]]
            if fails(config, tried):
                left[at] = tried[at]
                changed = True
    return changed


def _simpler(config: Config) -> Iterator[Config]:
    if len(config.queries) > 1:
        yield config._replace(queries=config.queries[:-1])
    for n, count in enumerate(config.topics):
        if count > 1:
            yield config._replace(topics=(*config.topics[:n], count - 1, *config.topics[n + 1 :]))
    if config.latest:
        yield config._replace(latest=False)
    if config.protocol == "classic":
        yield config._replace(protocol="consumer")


def tell(config: Config, actions: Sequence[Action], *, real_shell: bool = False) -> str:
    """Return the whole run as a text that people can follow, and that :func:`parse` can read."""
    story: list[str] = []
    try:
        with _world(config, real_shell=real_shell, story=story) as world:
            world.run(actions)
        end = "nothing is violated"
    except Violation as found:
        end = f"VIOLATED: {found}"
    return "\n".join([repr(config), ", ".join(map(str, actions)), *story, end])


def parse(text: str) -> list[Action]:
    """Read actions as :func:`tell` writes them: ``start 0 0, engine 0 4``."""
    return [
        Action(kind, int(who), int(arg))
        for kind, who, arg in (part.split() for part in text.split(",") if part.strip())
    ]
