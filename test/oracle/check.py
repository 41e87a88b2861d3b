"""Compares a Delta table with the ledger of what was produced, by independent readers.

usage: check.py --ledger FILE --table URL [--endpoint URL] [--readers deltalake,duckdb,polars,spark]
                [--held PARTITION:OFFSET]... [--lost PARTITION:FROM:NEXT]... [--copies FILE] [--predicates N [--most M]]
                [--no-order] [--day COLUMN] [--computed COLUMN]...

FILE of --copies is like the ledger, with one more column "of": exactly one of the records with the same value has a row.
COLUMN is one that the table computes, so the ledger lacks it. That of --day must be the UTC day of _kafka_timestamp.
Prints one JSON line for each comparison and exits 1 if one of them found something:
  sets        produced minus table and table minus produced, by topic, partition, offset and the hash of all columns
  predicates  for every column: what the engine selects against a full scan filtered outside of it, N values a column, M
              predicates at most
  order       the rows of each partition by commit version, add and row
"""

import argparse
import json
import sys
import time

import numpy
import pyarrow as pa
import pyarrow.compute as pc

import predicates
from ledger import Ledger
from readers import READERS


def position(text):
    partition, offset = text.split(":")
    return int(partition), int(offset)


def interval(text):
    partition, begin, end = text.split(":")
    return int(partition), int(begin), int(end)


def check_predicates(reader, batches, per_column, most):
    """Compares the rows that an engine selects with those of a full scan filtered outside of it."""
    table = predicates.plain_table(batches)
    key = table.select(["_kafka_partition", "_kafka_offset"])
    made = predicates.spread(predicates.make(table, per_column), most)
    wrong = []
    for predicate in made:
        want = keys(key.filter(predicates.outside(table, predicate)))
        got = keys(reader.select(predicate))
        if not numpy.array_equal(want, got):
            path, op, value = predicate
            missing, foreign = len(numpy.setdiff1d(want, got)), len(numpy.setdiff1d(got, want))
            wrong.append(f"{'.'.join(path)} {op} {value!r:.60}: {missing} rows missing, {foreign} too many")
    return {"predicates": len(made), "wrong": len(wrong), "examples": wrong[:10]}


def keys(table):
    """Returns the coordinates of rows as sorted integers."""
    partition, offset = (table.column(name).to_numpy().astype("int64") for name in ["_kafka_partition", "_kafka_offset"])
    return numpy.sort(partition << 48 | offset)


def without(computed, day, batches, found):
    """Yields batches without computed columns. found["wrong days"] counts rows with another day than their timestamp's."""
    found["wrong days"] = 0
    for batch in batches:
        if day:
            want = batch.column("_kafka_timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.date32())
            same = pc.fill_null(pc.equal(batch.column(day).cast(pa.date32()), want), False)
            found["wrong days"] += len(same) - (pc.sum(same).as_py() or 0)
        yield batch.select([name for name in batch.schema.names if name != day and name not in computed])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--ledger", required=True)
    args.add_argument("--table", required=True)
    args.add_argument("--endpoint")
    args.add_argument("--readers", default="deltalake,duckdb,polars")
    args.add_argument("--held", type=position, action="append", default=[])
    args.add_argument("--lost", type=interval, action="append", default=[])
    args.add_argument("--copies")
    args.add_argument("--predicates", type=int, default=0)
    args.add_argument("--most", type=int, default=1000)
    args.add_argument("--no-order", action="store_true")
    args.add_argument("--day")
    args.add_argument("--computed", action="append", default=[])
    a = args.parse_args()

    ledger = Ledger(a.ledger, a.held, a.lost, a.copies)
    good = True

    def report(check, reader, version, begin, found):
        nonlocal good
        bad = sum(n for what, n in found.items() if what not in ("rows", "predicates", "files", "examples"))
        good = good and bad == 0
        head = {"check": check, "reader": reader, "version": version, "ok": bad == 0}
        print(json.dumps(head | found | {"seconds": round(time.time() - begin, 1)}), flush=True)

    for name in a.readers.split(","):
        begin = time.time()
        reader = READERS[name](a.table, a.endpoint)
        batches, days = reader.rows(), {}
        if a.predicates:
            batches = list(batches)
        found = ledger.compare(without(a.computed, a.day, batches, days))
        report("sets", name, reader.version, begin, found | days)
        if not a.predicates:
            continue
        begin = time.time()
        report("predicates", name, reader.version, begin, check_predicates(reader, batches, a.predicates, a.most))
    if not a.no_order:
        import order

        begin = time.time()
        report("order", "pyarrow", pa.__version__, begin, order.check(a.table, a.endpoint))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
