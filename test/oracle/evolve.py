"""Alters a table as deltalake does, or prints its rows as three readers see them.

usage: evolve.py --table FOLDER --step N --type string|bigint|double   adds the column dN and appends three rows that have it
       evolve.py --table FOLDER --read deltalake|duckdb|polars         prints a line of JSON for each row, without nulls
"""

import argparse
import json

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

import readers
from evolverows import values, without_nulls

NAMES = {"string": ("string", pa.string()), "bigint": ("long", pa.int64()), "double": ("double", pa.float64())}


def alter(table, step, kind):
    name, arrow = NAMES[kind]
    DeltaTable(table).alter.add_columns([Field(f"d{step}", PrimitiveType(name))])
    ids = [1000 * (step + 1) + i for i in range(3)]
    columns = {"id": pa.array(ids, pa.int64()), f"d{step}": pa.array([values(kind, i) for i in ids], arrow)}
    write_deltalake(table, pa.table(columns), mode="append", schema_mode="merge")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--step", type=int)
    parser.add_argument("--type", default="string")
    parser.add_argument("--read")
    a = parser.parse_args()
    if a.step is not None:
        alter(a.table, a.step, a.type)
        return
    reader = {"deltalake": readers.DeltaLake, "duckdb": readers.DuckDB, "polars": readers.Polars}[a.read]
    for batch in reader(a.table, None).rows():
        for row in pa.Table.from_batches([batch]).to_pylist():
            print(json.dumps(without_nulls(row)))


if __name__ == "__main__":
    main()
