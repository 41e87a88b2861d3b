"""Verifies a benchmark's table. usage: verify.py TABLE ENDPOINT ROWS SUM_OF_QUANTITY"""

import sys

import polars as pl

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/oracle")
from readers import storage_options

table, endpoint, rows, quantity = sys.argv[1:]
found = (
    pl.scan_delta(table, storage_options=storage_options(endpoint))
    .select(pl.len().alias("rows"), pl.col("order_id").n_unique().alias("orders"), pl.col("quantity").sum())
    .collect(engine="streaming")
    .row(0)
)
print("rows, distinct orders, sum of quantity:", found)
sys.exit(0 if found == (int(rows), int(rows), int(quantity)) else 1)
