"""Prints the records that the rows of a table with inferred columns come from, one JSON line for each reader:
{"reader": …, "rows": [[partition, offset, record as JSON text], …]}

usage: inferred.py --table URL [--endpoint URL] [--readers deltalake,duckdb]

It uses what docs/schema.md says about the columns: their metadata and the column _rescued.
"""

import argparse
import json

import deltalake
import pyarrow as pa

from readers import READERS, storage_options

RESCUED = "_rescued"


class Raw(str):
    """JSON text."""


def text(value):
    """Returns a value as JSON text; raw text stays as it is."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(json.dumps(name) + ":" + text(v) for name, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(text(v) for v in value) + "]"
    return json.dumps(value, allow_nan=False)


def restored(value, field):
    """Returns the value of a column or of a field of a struct as the record has it."""
    if value is not None and field["metadata"].get("sluice.raw") is True:
        return Raw(value)
    return within(value, field["type"])


def within(value, kind):
    if value is None or isinstance(kind, str):
        return value
    if kind["type"] == "array":
        return [within(v, kind["elementType"]) for v in value]
    return fields(value, kind["fields"])


def fields(row, declared):
    found = {}
    for field in declared:
        value = restored(row[field["name"]], field)
        if value is not None:
            found[field["metadata"].get("sluice.field", field["name"])] = value
    return found


def steps(path):
    """Returns the names and indices of a path in the column _rescued."""
    found, at = [], 0
    while at < len(path):
        if path[at] == "[":
            end = path.index("]", at)
            found.append(int(path[at + 1 : end]))
            at = end + 1
        elif path[at] == ".":
            at += 1
        elif path[at] == "`":
            name, at = "", at + 1
            while path[at] != "`" or path[at : at + 2] == "``":
                width = 2 if path[at] == "`" else 1
                name, at = name + path[at], at + width
            found.append(name)
            at += 1
        else:
            end = min([i for i in (path.find(".", at), path.find("[", at)) if i >= 0], default=len(path))
            found.append(path[at:end])
            at = end
    return found


def entries(rescued):
    """Yields the path and the JSON text of each field in the column _rescued."""
    decoder, at = json.JSONDecoder(), 1
    while rescued[at] != "}":
        path, at = json.decoder.scanstring(rescued, at + 1 if rescued[at] == '"' else at + 2)
        end = decoder.raw_decode(rescued, at + 1)[1]
        yield path, Raw(rescued[at + 1 : end])
        at = end


def record(row, declared):
    found = fields(row, [f for f in declared if not f["name"].startswith("_kafka_") and f["name"] != RESCUED])
    for path, value in entries(row.get(RESCUED) or "{}"):
        *above, name = steps(path)
        at = found
        for step in above:
            at = at[step]
        assert name not in at, path
        at[name] = value
    return text(found)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table", required=True)
    p.add_argument("--endpoint", default="")
    p.add_argument("--readers", default="deltalake,duckdb")
    args = p.parse_args()
    table = deltalake.DeltaTable(args.table, storage_options=storage_options(args.endpoint))
    declared = json.loads(table.schema().to_json())["fields"]
    for name in args.readers.split(","):
        rows = pa.Table.from_batches(list(READERS[name](args.table, args.endpoint).rows())).to_pylist()
        found = [[row["_kafka_partition"], row["_kafka_offset"], record(row, declared)] for row in rows]
        print(json.dumps({"reader": name, "rows": sorted(found)}))


main()
