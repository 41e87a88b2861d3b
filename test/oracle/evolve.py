"""Alters a table as deltalake does, and reads it with three readers.

usage: evolve.py TABLE [--endpoint URL]     with requests on stdin: see answer in evolverows.py. The readers are deltalake,
duckdb and polars. A table in a bucket is only read.
"""

import argparse

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

import evolverows
import readers

TYPES = {"string": ("string", pa.string()), "bigint": ("long", pa.int64()), "double": ("double", pa.float64())}
READERS = {"deltalake": readers.DeltaLake, "duckdb": readers.DuckDB, "polars": readers.Polars}


def main(table, endpoint):
    def alter(step, kind, ids):
        name, arrow = TYPES[kind]
        DeltaTable(table).alter.add_columns([Field(f"d{step}", PrimitiveType(name))])
        columns = {"id": pa.array(ids, pa.int64()), f"d{step}": pa.array([evolverows.values(kind, i) for i in ids], arrow)}
        write_deltalake(table, pa.table(columns), mode="append", schema_mode="merge")

    def rows(reader):
        for batch in READERS[reader](table, endpoint).rows():
            yield from pa.Table.from_batches([batch]).to_pylist()

    evolverows.answer(alter, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--endpoint")
    a = parser.parse_args()
    main(a.table, a.endpoint)
