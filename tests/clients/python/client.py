"""The interop scenario with confluent-kafka: every step prints `ok STEP`; anything unexpected raises.

Steps are named alike in the programs of all languages (see tests/tests/clients.rs).
"""

import sys
import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PER_CODEC = 200
PARTITIONS = 4
LIMIT = 60.0


def ok(step):
    print("ok", step, flush=True)


def value(mark, number):
    return f"{mark}-{number}-" + "padding " * 8


def create(admin, topic, partitions=PARTITIONS):
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    limit = time.monotonic() + LIMIT
    while True:
        found = admin.list_topics(topic, timeout=LIMIT).topics[topic]
        if found.error is None and len(found.partitions) == partitions:
            return
        assert time.monotonic() < limit, found.error
        time.sleep(0.05)


def produce(bootstrap, topic, codec, mark):
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})

    def delivered(error, _message):
        if error is not None:
            failed.append(error)

    for number in range(PER_CODEC):
        producer.produce(
            topic,
            key=f"k{number}",
            value=value(mark, number),
            partition=number % PARTITIONS,
            headers=[("codec", codec), ("codec", None)],
            on_delivery=delivered,
        )
    assert producer.flush(LIMIT) == 0, "not everything was answered"
    assert not failed, failed


def member(bootstrap, group):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 500,
            "session.timeout.ms": 10000,
        }
    )


def poll_until(members, values, done, what):
    limit = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < limit, f"{what}: only {len(values)} values"
        for one in members:
            for message in one.consume(500, 0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                text = message.value().decode()
                assert text not in values, f"seen twice: {text}"
                values.add(text)


def scenario(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(admin, topic)
    ok("create")
    expected = set()
    for codec in CODECS:
        produce(bootstrap, topic, codec, codec)
        expected |= {value(codec, number) for number in range(PER_CODEC)}
        ok(f"produce.{codec}")

    group = topic + "-group"
    values = set()
    first, second = member(bootstrap, group), member(bootstrap, group)
    first.subscribe([topic])
    poll_until([first], values, lambda: len(values) >= len(expected), "the first member")
    assert values == expected
    first.commit(asynchronous=False)
    ok("consume")

    second.subscribe([topic])
    poll_until(
        [first, second],
        values,
        lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
        "the rebalance",
    )
    owned = {part.partition for part in first.assignment() + second.assignment()}
    assert len(owned) == PARTITIONS, owned
    produce(bootstrap, topic, "lz4", "second")
    poll_until([first, second], values, lambda: len(values) == len(expected) + PER_CODEC, "both members")
    first.commit(asynchronous=False)
    second.commit(asynchronous=False)
    ok("rebalance")

    second.close()
    poll_until([first], values, lambda: len(first.assignment()) == PARTITIONS, "taking over")
    first.close()
    ok("takeover")

    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    committed = sum(part.offset for part in found.topic_partitions)
    assert committed == len(expected) + PER_CODEC, committed
    ok("commit")

    produce(bootstrap, topic, "zstd", "third")
    rest = set()
    restarted = member(bootstrap, group)
    restarted.subscribe([topic])
    poll_until([restarted], rest, lambda: len(rest) >= PER_CODEC, "after the restart")
    restarted.commit(asynchronous=False)
    restarted.close()
    assert rest == {value("third", number) for number in range(PER_CODEC)}
    ok("restart")

    headers(bootstrap, topic)


def headers(bootstrap, topic):
    reader = member(bootstrap, topic + "-headers")
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    limit = time.monotonic() + LIMIT
    while True:
        assert time.monotonic() < limit, "no message"
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            assert message.headers() == [("codec", b"none"), ("codec", None)], message.headers()
            break
    reader.close()
    ok("headers")


def out_of_range(bootstrap, topic):
    """What Doris sees at an offset outside the log: -140 whose text names the broker's error."""
    for offset in (10_000, 1):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "doris",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, 0, offset)])
        limit = time.monotonic() + LIMIT
        while True:
            assert time.monotonic() < limit, f"no error at offset {offset}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            assert error is not None, f"offset {offset} gave a message"
            assert error.code() == KafkaError._AUTO_OFFSET_RESET, error
            assert "Offset out of range" in error.str(), error.str()
            break
        consumer.close()
    ok("out_of_range")


if __name__ == "__main__":
    {"scenario": scenario, "out_of_range": out_of_range}[sys.argv[1]](*sys.argv[2:])
