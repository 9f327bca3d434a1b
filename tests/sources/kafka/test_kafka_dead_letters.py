"""Dead letters: pointers to rejected records in a separate topic."""

import json
import threading
from typing import Any

from confluent_kafka import Consumer

from monitor.sources.kafka.consumer import FailureKind, KafkaFailure
from monitor.sources.kafka.dead_letters import MOST_WAITING, DeadLetters, Done, Letter
from monitor.sources.kafka.kafka_options import KafkaOptions
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import payload


def _read(bootstrap: str, topic: str, count: int) -> list[Any]:
    settings: dict[str, str | int | float | bool | None] = {
        "bootstrap.servers": bootstrap,
        "group.id": unique("letters"),
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"expected {count} letters, found {len(found)}"
        found.append(message)
    consumer.close()
    return found


def test_dead_letters_have_no_content(kafka: Topics, join: Join) -> None:
    topic, letters = kafka.create_topic(), kafka.create_topic(unique("letters"))
    Writer(kafka.bootstrap, topic).write([payload(0), b"SECRET no JSON", payload(2), b'{"probs": "SECRET"}'])
    member = join(kafka.bootstrap, topic, dead_letter_topic=letters)
    member.until_rows(f"{topic}/0", [0, 2])
    first, second = _read(kafka.bootstrap, letters, 2)
    assert [first.key(), second.key()] == [f"{topic}/0/1".encode(), f"{topic}/0/3".encode()]
    about = json.loads(first.value())
    assert (about["topic"], about["partition"], about["offset"], about["reason"]) == (topic, 0, 1, "bad_json")
    assert dict(first.headers())["cpcmon.reason"] == b"bad_json"
    assert dict(first.headers())["cpcmon.expected"] == b"a JSON object"
    assert b"SECRET" not in first.value() + second.value() + repr([first.headers(), second.headers()]).encode()
    member.until(lambda: member.counted["dead_letters_sent"] == 2, "letters to be counted")


def test_payloads_are_sent_if_configured(kafka: Topics, join: Join) -> None:
    topic, letters = kafka.create_topic(), kafka.create_topic(unique("letters"))
    Writer(kafka.bootstrap, topic).write([payload(0), b"no JSON"])
    member = join(kafka.bootstrap, topic, dead_letter_topic=letters, dead_letter_payload=True)
    member.until_rows(f"{topic}/0", [0])
    (found,) = _read(kafka.bootstrap, letters, 1)
    assert found.value() == b"no JSON"


OPTIONS = KafkaOptions(("kafka:9092",), "group", topics=("outputs",), dead_letter_topic="letters")
LETTER = Letter(b"outputs/0/1", b"{}", [])


def test_a_blocked_topic_does_not_block_and_excess_letters_are_dropped() -> None:
    stuck = threading.Event()

    class Stuck:
        def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]], done: Done) -> None:
            del key, value, headers
            stuck.wait()
            done(None)

        def close(self, timeout_seconds: float) -> None:
            pass

    letters = DeadLetters(OPTIONS, connect=lambda _: Stuck())
    for _ in range(MOST_WAITING + 100):
        letters.put(LETTER)
    counted, _ = letters.take_counted()
    stuck.set()
    letters.close()
    # One more may be in the sender.
    assert MOST_WAITING <= counted["dead_letters"] <= MOST_WAITING + 1
    assert counted["dead_letters"] + counted["dead_letters_dropped"] == MOST_WAITING + 100
    assert letters.take_counted()[0]["dead_letters_sent"] == counted["dead_letters"]


def test_a_failing_dead_letter_topic_is_reported() -> None:
    def refuse(_: KafkaOptions) -> Any:
        raise KafkaFailure(FailureKind.AUTHORIZATION, "a refusal", topics=["letters"])

    letters = DeadLetters(OPTIONS, connect=refuse)
    letters.put(LETTER)
    letters.close()
    counted, failure = letters.take_counted()
    assert failure is not None
    assert failure.kind is FailureKind.AUTHORIZATION
    assert counted["dead_letters_dropped"] == 1
