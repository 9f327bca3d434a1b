"""The protocol mock: faults on demand, without Java."""

import pytest
from confluent_kafka import KafkaError as Code
from kafka import OffsetAndMetadata
from kafka.errors import KafkaError

from tests.kafka.consuming import consumer, partitions, read
from tests.kafka.mock import MOCK_API_VERSION, MockCluster, Request
from tests.kafka.producing import Truth, Writer
from tests.kafka.topics import unique

_RECORDS = 500


@pytest.fixture
def topic(mock_kafka: MockCluster) -> str:
    return mock_kafka.create_topic(unique("outputs"), partitions=2, replication=3)


@pytest.fixture
def truth(mock_kafka: MockCluster, topic: str) -> Truth:
    writer = Writer(mock_kafka.bootstrap, topic)
    for partition in range(2):
        writer.write([b"%d" % number for number in range(_RECORDS)], partition)
    return writer.truth


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        pytest.param(Request.FETCH, Code.NOT_LEADER_FOR_PARTITION, id="leader moved"),
        pytest.param(Request.FETCH, Code.REQUEST_TIMED_OUT, id="timed out"),
        pytest.param(Request.METADATA, Code.LEADER_NOT_AVAILABLE, id="no leader yet"),
        pytest.param(Request.LIST_OFFSETS, Code.UNKNOWN_TOPIC_OR_PART, id="no beginning yet"),
    ],
)
def test_a_passing_error_costs_no_record(
    mock_kafka: MockCluster, topic: str, truth: Truth, request_: Request, error: int
) -> None:
    mock_kafka.fail_next(request_, *[error] * 3)
    with consumer(mock_kafka.bootstrap, api_version=MOCK_API_VERSION) as opened:
        opened.assign(partitions(topic, 2))
        assert read(opened, 2 * _RECORDS) == truth


def test_brokers_going_and_leaders_moving_cost_no_record(mock_kafka: MockCluster, topic: str, truth: Truth) -> None:
    with consumer(mock_kafka.bootstrap, api_version=MOCK_API_VERSION, max_poll_records=50) as opened:
        opened.assign(partitions(topic, 2))
        found = read(opened, 50)
        mock_kafka.set_leader(topic, 0, 2)
        mock_kafka.set_leader(topic, 1, 2)
        mock_kafka.set_down(1)
        mock_kafka.set_up(1)
        for partition, records in read(opened, 2 * _RECORDS - sum(map(len, found.values()))).items():
            found[partition] |= records
        assert found == truth


def test_an_injected_error_reaches_the_commit(mock_kafka: MockCluster, topic: str) -> None:
    (partition, _) = partitions(topic, 2)
    with consumer(mock_kafka.bootstrap, api_version=MOCK_API_VERSION, group_id=unique("group")) as opened:
        opened.assign([partition])
        mock_kafka.fail_next(Request.OFFSET_COMMIT, Code.OFFSET_METADATA_TOO_LARGE)
        with pytest.raises(KafkaError) as raised:
            opened.commit({partition: OffsetAndMetadata(1, "text", -1)})
        assert type(raised.value).__name__ == "OffsetMetadataTooLargeError"
        opened.commit({partition: OffsetAndMetadata(1, "text", -1)})
        assert opened.committed(partition) == 1


def test_a_group_survives_a_new_coordinator(mock_kafka: MockCluster, topic: str, truth: Truth) -> None:
    group = unique("group")
    mock_kafka.set_coordinator(group, 1)
    with consumer(mock_kafka.bootstrap, api_version=MOCK_API_VERSION, group_id=group) as opened:
        opened.subscribe([topic])
        assert read(opened, 2 * _RECORDS) == truth
        mock_kafka.set_coordinator(group, 3)
        opened.commit({partition: OffsetAndMetadata(_RECORDS, "", -1) for partition in opened.assignment()})
        assert {opened.committed(partition) for partition in opened.assignment()} == {_RECORDS}
