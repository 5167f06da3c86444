"""A Pulsar client for tests: writes messages that it reads as JSON lines, and prints messages that it reads as JSON lines.

    pulsar_client.py URL produce TOPIC COMPRESSION BATCH    messages on standard input; BATCH of 0 turns batching off
    pulsar_client.py URL consume TOPIC COUNT                from the earliest on; fails if COUNT do not come

Bytes are hexadecimal. Produced messages are printed as their ids once all are acknowledged.
"""

import json
import sys

import pulsar

LIMIT_MS = 60_000
CODECS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


def produce(client, topic, compression, batch):
    batched = batch > 0
    producer = client.create_producer(
        topic,
        compression_type=CODECS[compression],
        batching_enabled=batched,
        # The client wants more than one; batches of one are flushed one by one.
        batching_max_messages=max(batch, 2),
        # A batch leaves when it is full, or by the flush.
        batching_max_publish_delay_ms=60_000 if batched else 10,
        block_if_queue_full=True,
    )
    sent = []

    def done(result, identity):
        assert result == pulsar.Result.Ok, result
        sent.append(str(identity))

    count = 0
    for line in sys.stdin:
        message = json.loads(line)
        options = {name: message[name] for name in ("partition_key", "ordering_key", "properties", "event_timestamp") if name in message}
        producer.send_async(bytes.fromhex(message["data"]), done, **options)
        count += 1
        if batch == 1:
            producer.flush()
    producer.flush()
    producer.close()
    assert len(sent) == count, f"{len(sent)} of {count} were acknowledged"
    for identity in sent:
        print(json.dumps(identity))


def consume(client, topic, count):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for _ in range(count):
        message = reader.read_next(timeout_millis=LIMIT_MS)
        print(
            json.dumps(
                {
                    "data": message.data().hex(),
                    "partition_key": message.partition_key(),
                    "ordering_key": message.ordering_key(),
                    "properties": message.properties(),
                    "event_timestamp": message.event_timestamp(),
                    "topic": message.topic_name(),
                }
            )
        )
    reader.close()


def main():
    url, command, topic, *rest = sys.argv[1:]
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    if command == "produce":
        produce(client, topic, rest[0], int(rest[1]))
    else:
        consume(client, topic, int(rest[0]))
    client.close()


main()
