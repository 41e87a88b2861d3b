"""Counts rows, distinct coordinates and distinct orders of a local table with each reader. usage: count.py TABLE ROWS"""

import sys

import pyarrow as pa

from readers import READERS

table, want = sys.argv[1], int(sys.argv[2])
good = True
for name in ["deltalake", "duckdb", "polars"]:
    rows = pa.Table.from_batches(list(READERS[name](table, None).rows()))
    coordinates = set(zip(*[rows.column(f"_kafka_{c}").to_pylist() for c in ["topic", "partition", "offset"]]))
    orders = set(rows.column("order_id").to_pylist())
    print(f"{name}: {rows.num_rows} rows, {len(coordinates)} coordinates, {len(orders)} orders")
    good = good and rows.num_rows == len(coordinates) == len(orders) == want
sys.exit(0 if good else 1)
