"""The messages of the Kafka benchmarks, and their ingestion."""

import base64
import json

import numpy as np

from benchmarks.measures import outputs
from monitor.config.config import ModelOptions
from monitor.core.window import Bounds
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.reference.reference import Reference
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.kafka_source import KafkaSource
from monitor.state.store import State

CLASSES = 10
PARTITIONS = 8
MODEL = "density"
WINDOW = 5_000
NOW = 1_760_000_000.0
_DISTINCT = 1_000


def singles(count: int) -> list[bytes]:
    """Return messages of one record each, about 190 bytes long."""
    vectors = np.round(outputs(count, CLASSES, seed=2)[0].astype(np.float64), 6).tolist()
    return [
        json.dumps(
            {"model": MODEL, "id": f"exam-{number:09d}", "time": NOW + number / 100, "site": "A", "probs": vector},
            separators=(",", ":"),
        ).encode()
        for number, vector in enumerate(vectors)
    ]


def batches(count: int, in_each: int) -> list[bytes]:
    """Return messages of many records each, as JSON lists."""
    vectors = np.round(outputs(_DISTINCT * in_each, CLASSES, seed=3)[0].astype(np.float64), 6)
    messages = [
        json.dumps([{"probs": vector} for vector in some.tolist()], separators=(",", ":")).encode()
        for some in np.split(vectors, _DISTINCT)
    ]
    return [messages[number % _DISTINCT] for number in range(count)]


def packed_batches(count: int, in_each: int) -> list[bytes]:
    """Return the same records as packed numbers."""
    vectors = outputs(_DISTINCT * in_each, CLASSES, seed=3)[0].astype("<f4")
    packed = [base64.b64encode(some.tobytes()).decode() for some in np.split(vectors, _DISTINCT)]
    messages = [json.dumps({"probs_f32": one}).encode() for one in packed]
    return [messages[number % _DISTINCT] for number in range(count)]


def ingestion(state: State, options: KafkaOptions, reference: Reference) -> tuple[Ingestion, KafkaSource]:
    """Return the ingestion of a topic, as the daemon builds it."""
    model = ModelOptions(MODEL, reference, Bounds(records=WINDOW))
    source = KafkaSource("stream", options, RecordDecoder([model.format], hash_key=state.key))
    return Ingestion(state, [ModelState(model)], [source]), source
