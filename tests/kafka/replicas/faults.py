"""Random faults: replicas are killed, stopped, or frozen for longer than their session."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kafka.replicas.group import Group
from tests.kafka.replicas.replica import Replica

_KINDS = ("kill", "freeze", "stop")
_LONGEST_PAUSE = 2.0
"""Between two faults; a rebalance takes longer than some of these pauses."""
_LONGEST_AWAY = 1.5
_LONGEST_OVERDUE = 3.0


@dataclass
class Faults:
    """Injects faults into a group. The same seed gives the same faults, but not the same timing."""

    group: Group
    seed: int
    keep_state: bool
    done: Counter[str] = field(default_factory=Counter)
    _frozen: dict[str, float] = field(default_factory=dict)
    """When each frozen replica resumes."""

    def inject(self, count: int, progress: Callable[[str], None] = lambda _: None) -> None:
        """Inject so many faults in turn; all replicas run afterwards."""
        rng = random.Random(self.seed)  # noqa: S311 - no secret
        plan = [_KINDS[number % len(_KINDS)] for number in range(count)]
        rng.shuffle(plan)
        for number, kind in enumerate(plan):
            self._sleep(rng.random() * _LONGEST_PAUSE)
            while len(self._frozen) > 1:
                self._sleep(0.1)
            away = rng.random() * _LONGEST_AWAY
            replica = rng.choice([one for one in self.group.replicas if one.name not in self._frozen])
            progress(f"fault {number + 1} of {count}, seed {self.seed}: {kind} {replica.name}")
            self._inject_one(kind, replica, away)
            self.done[kind] += 1
        while self._frozen:
            self._sleep(0.1)

    def _inject_one(self, kind: str, replica: Replica, away: float) -> None:
        if kind == "freeze":
            replica.send_signal(signal.SIGSTOP)
            longer = away / _LONGEST_AWAY * _LONGEST_OVERDUE
            self._frozen[replica.name] = time.monotonic() + self.group.options.session_seconds + 0.5 + longer
            return
        if kind == "kill":
            replica.kill()
        else:
            replica.stop()
        if not self.keep_state:
            replica.delete_state()
        self._sleep(away)
        replica.start()

    def _sleep(self, seconds: float) -> None:
        """Wait, and resume the frozen replicas that are due."""
        until = time.monotonic() + seconds
        while True:
            for replica in self.group.replicas:
                if self._frozen.get(replica.name, float("inf")) <= time.monotonic():
                    del self._frozen[replica.name]
                    replica.send_signal(signal.SIGCONT)
            left = until - time.monotonic()
            if left <= 0.0:
                return
            time.sleep(min(left, 0.1))
