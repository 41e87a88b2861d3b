"""Compares a letter table, and the table that the letters are missing from, with the ledgers of what was produced.

usage: letters.py --ledger FILE --bad FILE --letters URL [--table URL] [--endpoint URL] [--readers duckdb,polars] [--void N]

FILE of --bad has what cannot become a row, by code and hash of key and value; --ledger the rest. Prints one JSON line for
each reader and exits 1 if it found something:
  altered   letters whose key, value or code is not the record's, or whose copies differ
  foreign   letters and rows about records that were not produced, or were no bad ones
  missing   records with neither a row nor a letter
  both      letters whose record has a row, but for the N that are known to be void
"""

import argparse
import base64
import csv
import hashlib
import json
import sys
import time

import pyarrow as pa

from readers import READERS

EXAMPLES = 5


def read_ledger(path):
    with open(path, newline="") as file:
        return {(r["topic"], int(r["partition"]), int(r["offset"])): r["hash"] for r in csv.DictReader(file)}


def original(text, encoding):
    """Returns the bytes of a column that holds text, or base64."""
    if text is None:
        return None
    return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()


def raw_hash(code, key, value):
    """Returns the text that the producer's ledger has for a record."""
    h = hashlib.sha256()
    for b in [key, value]:
        h.update(b"%d:" % (-1 if b is None else len(b)))
        h.update(b or b"")
    return code + " " + h.digest()[:16].hex()


def columns(reader, names):
    batches = list(reader.rows())
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    return zip(*[table.column(name).to_pylist() for name in names])


def check(reader, rows, good, bad, void):
    found = {"letters": 0, "distinct": 0, "altered": 0, "foreign": 0, "missing": 0, "both": -void, "examples": []}

    def finding(what, at):
        found[what] += 1
        if len(found["examples"]) < EXAMPLES:
            found["examples"].append(f"{what} {at}")

    letters = set()
    names = ["topic", "partition", "offset", "key", "key_encoding", "value", "value_encoding", "timestamp_ms"]
    for *at, key, key_encoding, value, value_encoding, _, code in columns(reader, ["original_" + n for n in names] + ["reason"]):
        found["letters"] += 1
        at = tuple(at)
        if at not in bad:
            finding("foreign", at)
        elif bad[at] != raw_hash(code, original(key, key_encoding), original(value, value_encoding)):
            finding("altered", at)
        letters.add(at)
    found["distinct"] = len(letters)
    have = set(columns(rows, ["_kafka_" + n for n in names[:3]])) if rows else set()
    for at in have:
        if at not in good and at not in bad:
            finding("foreign", at)
        if at in letters:
            finding("both", at)
    for at in [*good, *bad]:
        if at not in have and at not in letters:
            finding("missing", at)
    return found


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--ledger", required=True)
    args.add_argument("--bad", required=True)
    args.add_argument("--letters", required=True)
    args.add_argument("--table")
    args.add_argument("--endpoint")
    args.add_argument("--readers", default="duckdb,polars")
    args.add_argument("--void", type=int, default=0)
    a = args.parse_args()
    good, bad = read_ledger(a.ledger), read_ledger(a.bad)
    ok = True
    for name in a.readers.split(","):
        begin = time.time()
        rows = READERS[name](a.table, a.endpoint) if a.table else None
        reader = READERS[name](a.letters, a.endpoint)
        found = check(reader, rows, good, bad, a.void)
        fine = not any(found[what] for what in ["altered", "foreign", "missing", "both"])
        ok = ok and fine
        head = {"check": "letters", "reader": name, "version": reader.version, "ok": fine}
        print(json.dumps(head | found | {"seconds": round(time.time() - begin, 1)}), flush=True)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
