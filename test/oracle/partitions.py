"""Reads a partitioned table with three readers, with and without predicates, and compares the rows with those expected."""

import json
import sys

import pyarrow as pa

import readers

url, endpoint, expected = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3], encoding="utf-8"))
want = sorted((r["id"], r["country"], r["at_hour"], r["id_bucket"]) for r in expected)


def fail(reader, text):
    sys.exit(f"{reader}: {text}")


def rows_of(table):
    rows = table.select(["id", "country", "at_hour", "id_bucket"]).to_pylist()
    return sorted((r["id"], r["country"] or "", r["at_hour"], r["id_bucket"]) for r in rows)


def literal(text):
    return "'" + text.replace("'", "''") + "'"


for name, kind in [("deltalake", readers.DeltaLake), ("duckdb", readers.DuckDB), ("polars", readers.Polars)]:
    reader = kind(url, endpoint)
    got = rows_of(pa.Table.from_batches(list(reader.rows())))
    if got != want:
        fail(name, f"rows differ: {set(got) ^ set(want)}")
    # Equal to a country, an hour or a bucket: the reader must find exactly the rows with this value.
    for column, index in [("country", 1), ("at_hour", 2), ("id_bucket", 3)]:
        for value in sorted({r[index] for r in want if r[index] != ""}):
            ids = sorted(r[0] for r in want if r[index] == value)
            if name == "deltalake":
                text = value if column == "id_bucket" else literal(value)
                batches = list(readers.plain(reader.builder.execute(f"select id from t where {column} = {text}")))
                found = [r for b in batches for r in b.column(0).to_pylist()]
            elif name == "duckdb":
                found = [r[0] for r in reader.con.execute(f"select id from {reader.table} where {column} = ?", [value]).fetchall()]
            else:
                import polars

                found = reader.frame.filter(polars.col(column) == value).select("id").collect()["id"].to_list()
            if sorted(found) != ids:
                fail(name, f"{column} = {value!r}: {sorted(found)}, want {ids}")
print(f"{len(want)} rows, three readers")
