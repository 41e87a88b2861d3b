"""A tuned pipeline as a Python user would write it: librdkafka, pyarrow.json, deltalake; 100 000 rows a commit.

usage: peer.py BROKERS TOPIC TABLE ENDPOINT
"""

import io
import os
import sys

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from deltalake import write_deltalake

ROWS = 100_000
TEXT = pa.string()
SHIPPING = [(name, TEXT) for name in ["street", "city", "zip", "country"]] + [("lat", pa.float64()), ("note", TEXT)]
SCHEMA = pa.schema(
    [
        ("order_id", TEXT),
        ("customer_id", TEXT),
        ("store_id", pa.int64()),
        ("quantity", pa.int32()),
        ("total", pa.float64()),
        ("discount", pa.float64()),
        ("created_at", pa.timestamp("us", "UTC")),
        ("paid", pa.bool_()),
        ("status", TEXT),
        ("coupon", TEXT),
        ("shipping", pa.struct(SHIPPING)),
        ("tags", pa.list_(TEXT)),
    ]
)
# pyarrow's JSON reader does not parse the zone of a timestamp: it comes as text.
AT = SCHEMA.get_field_index("created_at")
PARSED = SCHEMA.set(AT, pa.field("created_at", TEXT))
PARSE = pyarrow.json.ParseOptions(explicit_schema=PARSED, unexpected_field_behavior="ignore")
READ = pyarrow.json.ReadOptions(block_size=8 << 20)


def rows(values):
    """Returns JSON values as a table."""
    table = pyarrow.json.read_json(io.BytesIO(b"\n".join(values)), read_options=READ, parse_options=PARSE)
    at = pc.replace_substring(table["created_at"], "Z", "").cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return table.set_column(AT, "created_at", at).select(SCHEMA.names).cast(SCHEMA)


def main():
    brokers, topic, table, endpoint = sys.argv[1:]
    storage = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "AWS_SECRET_ACCESS_KEY": os.environ["AWS_SECRET_ACCESS_KEY"],
        "AWS_REGION": os.environ["AWS_REGION"],
        "aws_conditional_put": "etag",
    }
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": table,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Twice the records a second of librdkafka's defaults.
            "queued.min.messages": 400_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    left = sum(consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p))[1] for p in partitions)
    consumer.subscribe([topic])
    values = []
    while left > 0:
        records = consumer.consume(min(10_000, ROWS - len(values)), 1)
        values += [r.value() for r in records if r.error() is None]
        if len(values) >= min(ROWS, left):
            write_deltalake(table, rows(values), mode="append", storage_options=storage)
            consumer.commit(asynchronous=False)
            left -= len(values)
            values = []
    consumer.close()


if __name__ == "__main__":
    main()
