"""Faults at random: replicas are killed, stopped in good order, or frozen for longer than their session lasts."""

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
"""Between two faults: shorter than it takes the group to share partitions anew, and longer."""
_LONGEST_AWAY = 1.5
_LONGEST_OVERDUE = 3.0


@dataclass
class Faults:
    """Does harm to a group. The same seed makes the same plan; when exactly it strikes is up to the machine."""

    group: Group
    seed: int
    keep_disk: bool
    done: Counter[str] = field(default_factory=Counter)
    _frozen: dict[str, float] = field(default_factory=dict)
    """When each frozen replica goes on."""

    def strike(self, count: int, told: Callable[[str], None] = lambda _: None) -> None:
        """Do so many faults, one after the other, and leave all replicas running."""
        dice = random.Random(self.seed)  # noqa: S311 - nothing is to be kept secret
        plan = [_KINDS[number % len(_KINDS)] for number in range(count)]
        dice.shuffle(plan)
        for number, kind in enumerate(plan):
            self._sleep(dice.random() * _LONGEST_PAUSE)
            while len(self._frozen) > 1:
                self._sleep(0.1)  # somebody must be left
            away = dice.random() * _LONGEST_AWAY
            replica = dice.choice([one for one in self.group.replicas if one.name not in self._frozen])
            told(f"fault {number + 1} of {count}, seed {self.seed}: {kind} {replica.name}")
            self._do(kind, replica, away)
            self.done[kind] += 1
        while self._frozen:
            self._sleep(0.1)

    def _do(self, kind: str, replica: Replica, away: float) -> None:
        if kind == "freeze":
            replica.tell(signal.SIGSTOP)
            longer = away / _LONGEST_AWAY * _LONGEST_OVERDUE
            self._frozen[replica.name] = time.monotonic() + self.group.setting.session_seconds + 0.5 + longer
            return
        if kind == "kill":
            replica.kill()
        else:
            replica.stop()
        if not self.keep_disk:
            replica.lose_disk()
        self._sleep(away)
        replica.start()

    def _sleep(self, seconds: float) -> None:
        """Wait, and let frozen replicas go on whose time has come."""
        until = time.monotonic() + seconds
        while True:
            for replica in self.group.replicas:
                if self._frozen.get(replica.name, float("inf")) <= time.monotonic():
                    del self._frozen[replica.name]
                    replica.tell(signal.SIGCONT)
            left = until - time.monotonic()
            if left <= 0.0:
                return
            time.sleep(min(left, 0.1))
