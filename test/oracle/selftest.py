"""Writes a table from a topic without any code of ours, for the test of the oracle: librdkafka, json, deltalake.

usage: selftest.py --brokers ADDR --topic NAME --table URL [--endpoint URL] [--commits N] [--break KIND]

KIND damages one row: missing, foreign, duplicate, altered, disordered.
"""

import argparse
import datetime
import json

import confluent_kafka
import pyarrow as pa
from deltalake import write_deltalake

from readers import storage_options

UTC = datetime.timezone.utc
SCHEMA = pa.schema(
    [
        ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("us", "UTC")),
        ("order_id", pa.string()),
        ("customer_id", pa.string()),
        ("store_id", pa.int64()),
        ("quantity", pa.int32()),
        ("total", pa.float64()),
        ("discount", pa.float64()),
        ("created_at", pa.timestamp("us", "UTC")),
        ("paid", pa.bool_()),
        ("status", pa.string()),
        ("coupon", pa.string()),
        (
            "shipping",
            pa.struct(
                [(name, pa.string()) for name in ["street", "city", "zip", "country"]]
                + [("lat", pa.float64()), ("note", pa.string())]
            ),
        ),
        ("tags", pa.list_(pa.string())),
    ]
)


def committed(brokers, topic):
    """Yields the records of a topic that a reader of committed records sees."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "selftest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in partitions])
    left = len(partitions)
    while left:
        for record in consumer.consume(10000, 1):
            if record.error() is None:
                yield record
            elif record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left -= 1
            else:
                raise confluent_kafka.KafkaException(record.error())
    consumer.close()


def row(record):
    value = json.loads(record.value())
    if value.get("created_at"):
        value["created_at"] = datetime.datetime.fromisoformat(value["created_at"]).astimezone(UTC)
    for where, field in [(value, "total"), (value, "discount"), (value.get("shipping") or {}, "lat")]:
        if where.get(field) is not None:
            where[field] = float(where[field])
    return value | {
        "_kafka_topic": record.topic(),
        "_kafka_partition": record.partition(),
        "_kafka_offset": record.offset(),
        "_kafka_timestamp": datetime.datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC),
    }


def damage(rows, kind):
    middle = len(rows) // 2
    if kind == "missing":
        del rows[middle]
    elif kind == "foreign":
        rows.append(rows[middle] | {"_kafka_offset": 10**9})
    elif kind == "duplicate":
        rows.append(dict(rows[middle]))
    elif kind == "altered":
        rows[middle]["shipping"] = {"city": "elsewhere"}
    elif kind == "disordered":
        while rows[middle]["_kafka_partition"] != rows[middle + 1]["_kafka_partition"]:
            middle += 1  # rows of two partitions have no order
        rows[middle], rows[middle + 1] = rows[middle + 1], rows[middle]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--brokers", required=True)
    args.add_argument("--topic", required=True)
    args.add_argument("--table", required=True)
    args.add_argument("--endpoint")
    args.add_argument("--commits", type=int, default=4)
    args.add_argument("--break", dest="damage", default="")
    a = args.parse_args()
    rows = [row(record) for record in committed(a.brokers, a.topic)]
    rows.sort(key=lambda r: (r["_kafka_partition"], r["_kafka_offset"]))
    damage(rows, a.damage)
    size = -(-len(rows) // a.commits)
    for n in range(0, len(rows), size):
        table = pa.Table.from_pylist(rows[n : n + size], schema=SCHEMA)
        write_deltalake(a.table, table, mode="append", storage_options=storage_options(a.endpoint))


if __name__ == "__main__":
    main()
