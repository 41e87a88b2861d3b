"""Writes a table as deltalake does, with what makes its files differ from ours, and prints its rows as deltalake reads them.

usage: foreign.py --table FOLDER

One line of JSON for each row: id, day, name, at (microseconds since 1970), local, price, late and nested.
"""

import argparse
import datetime
import json

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

UTC = datetime.timezone.utc
START = datetime.datetime(2024, 2, 28, 23, 59, 59, 123456)

FIELDS = [
    ("_kafka_topic", pa.string()),
    ("_kafka_partition", pa.int32()),
    ("_kafka_offset", pa.int64()),
    ("_kafka_timestamp", pa.timestamp("us", "UTC")),
    ("id", pa.int64()),
    ("day", pa.date32()),
    ("name", pa.dictionary(pa.int32(), pa.string())),
    ("local", pa.timestamp("us")),
    ("price", pa.float32()),
    ("nested", pa.struct([("a", pa.struct([("b", pa.string())]))])),
]


def rows(first, number, late):
    fields = FIELDS + ([("late", pa.string())] if late else [])
    made = []
    for i in range(first, first + number):
        at = START + datetime.timedelta(minutes=i)
        row = {
            "_kafka_topic": "orders",
            "_kafka_partition": i % 3,
            "_kafka_offset": i,
            "_kafka_timestamp": at.replace(tzinfo=UTC),
            "id": i,
            "day": at.date() if i % 10 else None,
            "name": None if i % 7 == 0 else f"name {i % 5} ä",
            "local": at,
            "price": i / 4,
            "nested": None if i % 4 == 0 else {"a": None if i % 4 == 1 else {"b": f"b{i}"}},
            "late": f"late {i}",
        }
        made.append({name: row[name] for name, _ in fields})
    return pa.Table.from_pylist(made, schema=pa.schema(fields))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    table = parser.parse_args().table
    for i in range(6):
        write_deltalake(table, rows(i * 300, 300, False), mode="append", partition_by=["day"])
    DeltaTable(table).create_checkpoint()
    DeltaTable(table).delete("id >= 250 AND id < 420")
    write_deltalake(table, rows(1800, 300, True), mode="append", schema_mode="merge")
    DeltaTable(table).optimize.compact()
    write_deltalake(table, rows(2100, 50, True), mode="append")
    for row in DeltaTable(table).to_pyarrow_table().to_pylist():
        at = row["_kafka_timestamp"].astimezone(UTC).replace(tzinfo=None)
        print(
            json.dumps(
                {
                    "id": row["id"],
                    "day": str(row["day"]) if row["day"] else None,
                    "name": row["name"],
                    "at": (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1),
                    "local": row["local"].isoformat(),
                    "price": row["price"],
                    "late": row.get("late"),
                    "nested": ((row["nested"] or {}).get("a") or {}).get("b"),
                }
            )
        )


if __name__ == "__main__":
    main()
