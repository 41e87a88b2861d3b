"""Prints what a table has of the records that its rows come from, one JSON line for each reader:
{"reader": …, "rows": [[topic, offset, key, [[header name, header value], …], timestamp type, has an ingestion time, *columns], …]}

usage: records.py --table URL [--endpoint URL] [--readers deltalake,duckdb] [--columns a,b]

Bytes are printed in hexadecimal, and null is null.
"""

import argparse
import datetime
import json

import pyarrow as pa

from readers import READERS


def text(value):
    return value.hex() if isinstance(value, bytes) else value


def row(found, columns):
    headers = found["_kafka_headers"]
    ingested = found["_kafka_ingested_at"]
    return [
        found["_kafka_topic"],
        found["_kafka_offset"],
        text(found["_kafka_key"]),
        headers if headers is None else [[h["key"], text(h["value"])] for h in headers],
        found["_kafka_timestamp_type"],
        isinstance(ingested, datetime.datetime),
        *[found[name] for name in columns],
    ]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table", required=True)
    p.add_argument("--endpoint", default="")
    p.add_argument("--readers", default="deltalake,duckdb")
    p.add_argument("--columns", default="")
    args = p.parse_args()
    columns = [name for name in args.columns.split(",") if name]
    for name in args.readers.split(","):
        table = pa.Table.from_batches(list(READERS[name](args.table, args.endpoint).rows()))
        rows = [row(found, columns) for found in table.to_pylist()]
        print(json.dumps({"reader": name, "rows": sorted(rows, key=lambda r: r[:2])}))


main()
