"""Compares the rows of a table with those of a file, as each reader shows them, with and without predicates on decimals.

usage: typedrows.py --table FOLDER --want FILE

The file has a row of JSON a line: decimals as text, bytes in hex, timestamps as microseconds, maps as lists of pairs.
"""

import argparse
import datetime
import decimal
import json
import sys

import pyarrow as pa

import readers

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
DECIMALS = {"d": "decimal(9,2)", "mid": "decimal(18,4)", "wide": "decimal(38,6)"}


def plain(value):
    """Returns a value of a reader in the form of the file."""
    if isinstance(value, decimal.Decimal):
        return _stripped(format(value, "f")) if value else "0"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, list):
        if value and all(_is_entry(v) for v in value):
            pairs = [(v["key"], v["value"]) if isinstance(v, dict) else v for v in value]
            return [[k, plain(v)] for k, v in sorted(pairs, key=lambda pair: pair[0])]
        return [plain(v) for v in value]
    return value


def _stripped(text):
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_entry(value):
    return isinstance(value, tuple) or isinstance(value, dict) and set(value) == {"key", "value"}


def select(name, reader, column, bound):
    """Returns the n of the rows whose column is at least bound, with the reader's own pruning."""
    where = f"{column} >= cast('{bound}' as {DECIMALS[column]})"  # a plain number may be a double
    if name == "duckdb":
        return reader.con.sql(f"select n from {reader.table} where {where}").to_arrow_table().column(0).to_pylist()
    if name == "deltalake":
        batches = list(readers.plain(reader.builder.execute(f"select n from t where {where}")))
        return [n for batch in batches for n in batch.column(0).to_pylist()]
    import polars

    found = reader.frame.filter(polars.col(column) >= decimal.Decimal(bound)).select("n").collect()
    return found.to_series().to_list()


def check(name, table, want):
    reader = readers.READERS[name](table, "")
    got = {}
    for row in pa.Table.from_batches(list(reader.rows())).to_pylist():
        n = row["n"]
        if n in got:
            return f"row {n} comes twice"
        got[n] = plain({column: row[column] for column in want[0]})
    if set(got) != set(want):
        return f"{len(got)} rows instead of {len(want)}"
    for n, row in want.items():
        for column, value in row.items():
            if got[n][column] != value:
                return f"row {n}, column {column}: {got[n][column]!r} instead of {value!r}"
    for column in DECIMALS:
        for n in range(0, len(want), 37):
            bound = want[n][column]
            if bound is None:
                continue
            least = decimal.Decimal(bound)
            rows = {m for m, row in want.items() if row[column] is not None and decimal.Decimal(row[column]) >= least}
            if set(select(name, reader, column, bound)) != rows:
                return f"{column} >= {bound} finds other rows"
    return ""


def main():
    decimal.getcontext().prec = 60
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--want", required=True)
    args = parser.parse_args()
    with open(args.want, encoding="utf-8") as lines:
        want = {row["n"]: row for row in map(json.loads, lines)}
    failed = False
    for name in ["deltalake", "duckdb", "polars"]:
        difference = check(name, args.table, want)
        failed = failed or difference != ""
        print(f"{name}: {len(want)} rows, {len(want[0])} columns: {difference or 'equal'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
