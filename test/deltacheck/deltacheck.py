"""An independent validator of Delta tables, with the checks of checks.json that a table alone can show.

usage: deltacheck.py [--foreign] [--json] TABLE...

Each finding is a line: the table, the number of the check, and what is wrong. Exits 1 if there are any. --foreign also
accepts what other writers may do: commits without txnId, other forms of statistics.
"""

import argparse
import collections
import datetime
import decimal
import json
import os
import re
import sys
import urllib.parse

import values
from tablelog import Table, arrow_of, crcs, fields_of, leaves_of, restrict, structs_of

CHECKS = {}
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def check(number):
    def add(function):
        CHECKS[number] = function
        return function

    return add


@check(1)
def begins(t):
    first = [name for name, _ in t.actions.get(0, [])]
    if 0 in t.commits and not {"protocol", "metaData"} <= set(first):
        yield f"version 0 has {first}"
    versions = sorted(t.commits)
    if versions != list(range(versions[0], versions[0] + len(versions))):
        yield f"versions {versions}"
    for name in t.names:
        if name.endswith(".json") and not re.fullmatch(r"\d{20}\.json", name):
            yield f"a commit is named {name}"


@check(2)
def lines(t):
    for version, raw in t.commits.items():
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as e:
            yield f"version {version}: {e}"
        if raw.startswith(b"\xef\xbb\xbf"):
            yield f"version {version} begins with a byte order mark"
        if not raw.endswith(b"\n") or raw.endswith(b"\n\n") or b"\n\n" in raw or b"\r" in raw:
            yield f"version {version}: not one line for each action, each with its newline"
        for name, what in t.actions[version]:
            if name.startswith("not "):
                yield f"version {version}: {name}: {what!r:.80}"


@check(3)
def commit_info(t):
    seen = {}
    for version, actions in t.actions.items():
        names = [name for name, _ in actions]
        if names[:1] != ["commitInfo"] or names.count("commitInfo") != 1:
            yield f"version {version} begins with {names[:1]} and has {names.count('commitInfo')} commitInfo"
        txn = next((f.get("txnId") for name, f in actions if name == "commitInfo"), None)
        if not txn or txn in seen:
            yield f"version {version}: txnId {txn!r}, as version {seen.get(txn)}"
        seen[txn] = version


@check(4)
def no_duplicates(t):
    keys = {"txn": "appId", "domainMetadata": "domain", "add": "path", "remove": "path"}
    for version, actions in t.actions.items():
        count = collections.Counter()
        for name, fields in actions:
            if name in ("protocol", "metaData") or name in keys:
                count[name, fields.get(keys.get(name))] += 1
        for (name, key), n in count.items():
            if n > 1:
                yield f"version {version}: {n} times {name} {key}"


@check(5)
def sizes(t):
    for add in t.whole().files.values():
        path = t.key(add["path"])
        if not os.path.exists(path):
            yield f"{add['path']} is not there"
            continue
        if os.path.getsize(path) != add["size"]:
            yield f"{add['path']} has {os.path.getsize(path)} bytes, size says {add['size']}"
        if not 1_000_000_000_000 < add["modificationTime"] < 10_000_000_000_000:
            yield f"{add['path']}: modificationTime {add['modificationTime']} is not in milliseconds"


@check(6)
def paths(t):
    for version, add in t.adds():
        path = add["path"]
        if urllib.parse.urlsplit(path).scheme or path.startswith("/"):
            yield f"version {version}: the path {path} is absolute"
        elif re.search(r"[^A-Za-z0-9\-._~!$&'()*+,;=:@/%]|%(?![0-9A-Fa-f]{2})", path):
            yield f"version {version}: {path!r} is no URI"


@check(7)
def partition_values(t):
    want = t.whole().metadata["partitionColumns"]
    for add in t.whole().files.values():
        if sorted(add["partitionValues"]) != sorted(want):
            yield f"{add['path']} has values of {sorted(add['partitionValues'])}"


def files(t):
    """Yields the adds of the newest state whose file can be read; check 5 reports the others."""
    for add in t.whole().files.values():
        if os.path.exists(t.key(add["path"])):
            yield add, t.file(add)


@check(8)
def not_in_parquet(t):
    for add, file in files(t):
        both = set(t.whole().metadata["partitionColumns"]) & set(file.parquet.schema_arrow.names)
        if both:
            yield f"{add['path']} contains the partition columns {sorted(both)}"


@check(9)
def last_updated(t):
    for version, actions in t.actions.items():
        for name, fields in actions:
            if name == "txn" and not isinstance(fields.get("lastUpdated"), int):
                yield f"version {version}: {fields['appId']} has no lastUpdated"


@check(10)
def positions(t):
    """Each range begins where the txn of its partition stands, and the txn moves to its end."""
    at = {} if 0 in t.commits else {k: x["version"] for k, x in t.state(t.checkpoints[-1], t.checkpoints[-1]).txns.items()}
    for version, actions in sorted(t.actions.items()):
        info = next((f for name, f in actions if name == "commitInfo"), {})
        ours = info.get("sluice") or {}
        moved = {f["appId"]: f["version"] for name, f in actions if name == "txn"}
        for r in ours.get("ranges", []):
            ids = [a for a in moved if re.fullmatch(rf"kd1:[^:]*:[^:]*:{re.escape(escape(r['topic']))}:[^:]*:{r['partition']}", a)]
            if not any(moved[a] == r["next"] for a in ids):
                yield f"version {version}: no txn is at the end {r['next']} of partition {r['partition']}"
            elif r["from"] >= 0 and not ours.get("moved"):
                if not any(at.get(a, r["from"]) == r["from"] for a in ids):
                    yield f"version {version}: the range of partition {r['partition']} begins at {r['from']}, not at the txn"
            if r["next"] < r["from"] and not ours.get("moved"):
                yield f"version {version}: partition {r['partition']} goes back from {r['from']} to {r['next']}"
            if r["rows"] > r["next"] - r["from"] and r["from"] >= 0:
                yield f"version {version}: {r['rows']} rows of partition {r['partition']} in [{r['from']}, {r['next']})"
        at |= moved


def escape(text):
    return urllib.parse.quote_plus(text)


@check(22)
def utf8(t):
    for add, file in files(t):
        for name in file.parquet.schema_arrow.names:
            try:
                file.table().column(name).validate(full=True)
            except Exception as e:
                yield f"{add['path']}: column {name}: {e}"


@check(28)
def no_empty_commit(t):
    for version, actions in t.actions.items():
        if {name for name, _ in actions} == {"commitInfo"}:
            yield f"version {version} does nothing"
        for name, fields in actions:
            if name == "add" and json.loads(fields.get("stats") or "{}").get("numRecords") == 0:
                yield f"version {version}: {fields['path']} has no rows"


@check(30)
def required(t):
    columns = t.whole().columns()
    for add, file in files(t):
        for c in columns:
            if c["name"] in add["partitionValues"]:
                if c["required"] and add["partitionValues"][c["name"]] is None:
                    yield f"{add['path']}: NOT NULL partition column {c['name']} is null"
                continue
            index = file.table().schema.get_field_index(c["name"])
            if c["required"] and (index < 0 or file.table().column(index).null_count):
                yield f"{add['path']}: NOT NULL column {c['name']} has nulls"


def statistics(t):
    """Yields (add, file, stats, leaves) of each file with statistics."""
    state = t.whole()
    columns = [c for c in state.columns() if c["name"] not in state.metadata["partitionColumns"]]
    for add, file in files(t):
        stats = json.loads(add.get("stats") or "{}", parse_float=decimal.Decimal)
        yield add, file, stats, list(leaves_of(file, columns))


def at(tree, path):
    """Returns what stands at a path in nested objects; None if nothing does."""
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree


def encoded(text):
    """Returns the bytes of a text, also of one that is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def ordered(kind, found):
    """Returns the values of a leaf in the order of their type, without NaN."""
    name = kind["kind"]
    if name in ("float", "double"):
        return sorted(values.number(x) for x in found if x != "nan")
    if name == "string":
        return sorted(map(encoded, found))
    if name.startswith("decimal"):
        return sorted(map(decimal.Decimal, found))
    return sorted(found)


def bound(kind, text):
    """Returns a bound of the statistics as a value of its type; times become microseconds."""
    name = kind["kind"]
    if name == "date":
        return (datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days
    if name in ("timestamp", "timestamp_ntz"):
        x = datetime.datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=datetime.timezone.utc)
        return (x - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(microseconds=1)
    if name in ("float", "double"):
        return float(text)
    return text.encode() if name == "string" else text


def has_bounds(kind):
    return "kind" in kind and kind["kind"] != "binary"


@check(31)
def bounds_hold(t):
    for add, file, stats, leaves in statistics(t):
        for path, kind, rows in leaves:
            if not has_bounds(kind):
                continue
            found = ordered(kind, [x for x in rows if x is not None])
            low, high = at(stats.get("minValues"), path), at(stats.get("maxValues"), path)
            nan = any(x == "nan" for x in rows)
            if low is not None and found and bound(kind, low) > found[0]:
                yield f"{add['path']}: {'.'.join(path)}: the minimum {low!r:.60} is greater than {found[0]!r:.60}"
            if high is not None and found and not nan and bound(kind, high) < found[-1]:
                yield f"{add['path']}: {'.'.join(path)}: the maximum {high!r:.60} is less than {found[-1]!r:.60}"
            if (low is not None or high is not None) and not found and not nan:
                yield f"{add['path']}: {'.'.join(path)}: bounds without a value"


def units(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def prefix(text, most):
    """Returns the shortest prefix of whole characters with at least so many UTF-16 units."""
    for i in range(len(text) + 1):
        if units(text[:i]) >= most:
            return text[:i]
    return text


def number(t, name, default):
    """Returns a property of the table as a number."""
    return int(t.whole().metadata.get("configuration", {}).get(name, default))


def spark_max(text, most):
    """Returns Spark's maximum for a text, None if it has none."""
    cut = prefix(text, most)
    while units(cut) <= 2 * most:
        rest = text[len(cut) :]
        if not rest:
            return text
        if rest[0] != "\U0010ffff":
            return cut + ("\x7f" if rest[0] < "\x7f" else "\U0010ffff")
        cut += rest[0]
    return None


@check(32)
def texts(t):
    most = number(t, "delta.dataSkippingStringPrefixLength", 32)
    for add, file, stats, leaves in statistics(t):
        for path, kind, rows in leaves:
            found = [x for x in rows if x is not None]
            if kind.get("kind") != "string" or not found or at(stats.get("nullCount"), path) is None:
                continue
            low, high = min(found, key=encoded), max(found, key=encoded)
            got = at(stats.get("minValues"), path), at(stats.get("maxValues"), path)
            # Bounds that hold but have another form are wrong here; check 31 has those that do not hold.
            if got[0] != prefix(low, most) and (got[0] is None or got[0].encode() <= encoded(low)):
                yield f"{add['path']}: {'.'.join(path)}: minimum {got[0]!r:.80}"
            if got[1] != spark_max(high, most) and (got[1] is None or got[1].encode() >= encoded(high)):
                yield f"{add['path']}: {'.'.join(path)}: maximum {got[1]!r:.80}"


@check(33)
def floats(t):
    for add, file, stats, leaves in statistics(t):
        for path, kind, rows in leaves:
            if kind.get("kind") not in ("float", "double"):
                continue
            low, high = at(stats.get("minValues"), path), at(stats.get("maxValues"), path)
            where = f"{add['path']}: {'.'.join(path)}"
            if any(isinstance(x, str) for x in (low, high)):
                yield f"{where}: a bound that is no JSON number"
                continue
            if high is not None and any(x == "nan" for x in rows):
                yield f"{where}: a maximum beside NaN"
            if low is not None and low == 0 and not str(low).startswith("-"):
                yield f"{where}: the minimum {low} excludes -0.0"
            if high is not None and high == 0 and str(high).startswith("-"):
                yield f"{where}: the maximum {high} excludes 0.0"


@check(34)
def null_counts(t):
    for add, file, stats, leaves in statistics(t):
        if stats.get("numRecords") != file.rows:
            yield f"{add['path']}: numRecords {stats.get('numRecords')}, the file has {file.rows}"
        for path, kind, rows in leaves:
            said = at(stats.get("nullCount"), path)
            if said is not None and said != sum(x is None for x in rows):
                yield f"{add['path']}: {'.'.join(path)}: nullCount {said}, the file has {sum(x is None for x in rows)}"


@check(35)
def no_bounds(t):
    state = t.whole()
    for add, file, stats, leaves in statistics(t):
        for path, kind, rows in leaves:
            if not has_bounds(kind):
                for tree in ("minValues", "maxValues"):
                    if at(stats.get(tree), path) is not None:
                        yield f"{add['path']}: {'.'.join(path)} has {tree}"
        for name in state.metadata["partitionColumns"]:
            if any(name in stats.get(tree, {}) for tree in ("minValues", "maxValues", "nullCount")):
                yield f"{add['path']}: the partition column {name} has statistics"


@check(27)
def indexed(t):
    most = number(t, "delta.dataSkippingNumIndexedCols", 32)
    without = excluded(t)
    for add, file, stats, leaves in statistics(t):
        for n, (path, kind, rows) in enumerate(leaves):
            there = at(stats.get("nullCount"), path) is not None
            want = (n < most or most < 0) and not below(path, without)
            if there != want and (there or has_leaf(file, path)):
                yield f"{add['path']}: leaf {n} {'.'.join(path)} {'has' if there else 'lacks'} statistics"


def excluded(t):
    """Returns the paths without statistics, which the generator writes into the description of the table."""
    said = (t.whole().metadata.get("description") or "").partition("without statistics: ")[2]
    return json.loads(said) if said else []


def below(path, those):
    return any(list(path[: len(x)]) == x for x in those)


def has_leaf(file, path):
    """Reports whether a file has a column: it may be older than the column."""
    fields = file.parquet.schema_arrow
    for name in path:
        try:
            fields = fields.field(name)
        except KeyError:
            return False
        fields = getattr(fields, "type", fields)
    return True


@check(36)
def decimals(t):
    for add, file, stats, leaves in statistics(t):
        for path, kind, rows in leaves:
            if not kind.get("kind", "").startswith("decimal"):
                continue
            found = [decimal.Decimal(x) for x in rows if x is not None]
            if found and at(stats.get("nullCount"), path) is not None:
                for tree, want in (("minValues", min(found)), ("maxValues", max(found))):
                    got = at(stats.get(tree), path)
                    # A bound that does not hold is check 31's.
                    holds = got is not None and (got <= want if tree == "minValues" else got >= want)
                    if got is None or holds and decimal.Decimal(got) != want:
                        yield f"{add['path']}: {'.'.join(path)}: {tree} {got}, exact is {want}"


@check(38)
def footers(t):
    without = excluded(t)
    for add, file in files(t):
        meta = file.parquet.metadata
        for group in range(meta.num_row_groups):
            for i in range(meta.num_columns):
                chunk, column = meta.row_group(group).column(i), meta.schema.column(i)
                stats = chunk.statistics
                if stats is None or not stats.has_min_max:
                    continue
                where = f"{add['path']}: footer of {chunk.path_in_schema}"
                if column.max_repetition_level > 0:
                    yield f"{where}: bounds of a repeated leaf"
                    continue
                if chunk.physical_type in ("FLOAT", "DOUBLE"):
                    yield f"{where}: bounds of floats"
                    continue
                if below(chunk.path_in_schema.split("."), without):
                    yield f"{where}: bounds of an excluded column"
                # As they are stored, because Python has no date of the year 0.
                raw = chunk.physical_type in ("BYTE_ARRAY", "INT32", "INT64")
                low, high = (stats.min_raw, stats.max_raw) if raw else (stats.min, stats.max)
                if low > high:
                    yield f"{where}: minimum {low!r:.40}, maximum {high!r:.40}"


@check(40)
def empty_partitions(t):
    for version, add in t.adds():
        for name, value in add["partitionValues"].items():
            if value == "" or value == HIVE_NULL:
                yield f"version {version}: partition {name} has the value {value!r}"


@check(41)
def partition_texts(t):
    forms = {
        "date": r"-?\d{4,}-\d\d-\d\d", "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", "boolean": "true|false",
        "timestamp_ntz": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?",
    }
    kinds = {c["name"]: c["type"].get("kind", "") for c in t.whole().columns()}
    for version, add in t.adds():
        for name, value in add["partitionValues"].items():
            kind = kinds.get(name, "")
            form = forms.get(kind, r"-?\d+" if kind.endswith("int") else r"-?\d+(\.\d+)?" if kind.startswith("decimal") else ".*")
            if value not in (None, "", HIVE_NULL) and not re.fullmatch(form, value, re.DOTALL):
                yield f"version {version}: {name} {kind} has the value {value!r}"


@check(44)
def key_length(t):
    for version, add in t.adds():
        key = urllib.parse.unquote(add["path"])
        if len(key.encode()) > 900 or any(len(part.encode()) > 255 for part in key.split("/")):
            yield f"version {version}: a key of {len(key.encode())} bytes"


@check(47)
def names_differ(t):
    for struct in structs_of(json.loads(t.whole().metadata["schemaString"])):
        count = collections.Counter(f["name"].lower() for f in struct["fields"])
        for name, n in count.items():
            if n > 1:
                yield f"{n} fields are named {name} but for the case"


@check(48)
def names_allowed(t):
    for path, field in fields_of(json.loads(t.whole().metadata["schemaString"])):
        if re.search(r"[ ,;{}()\n\t=]", field["name"]) or not field["name"]:
            yield f"the name {field['name']!r} needs column mapping"
        if len(path) == 1 and field["name"].lower() in ("_change_type", "_commit_version", "_commit_timestamp"):
            yield f"the name {field['name']} is reserved for the change data feed"


@check(49)
def parquet_types(t):
    columns = t.whole().columns()
    for add, file in files(t):
        schema = file.parquet.schema_arrow
        for c in columns:
            index = schema.get_field_index(c["name"])
            if index >= 0:
                want = arrow_of(restrict(c["type"], schema.field(index).type))
                if not same_type(schema.field(index).type, want):
                    yield f"{add['path']}: {c['name']} is {schema.field(index).type}, want {want}"


def same_type(got, want):
    """Compares Arrow types without the names that lists and maps give to their parts."""
    import pyarrow as pa

    if pa.types.is_struct(want):
        return pa.types.is_struct(got) and [f.name for f in got] == [f.name for f in want] and all(
            same_type(g.type, w.type) for g, w in zip(got, want)
        )
    if pa.types.is_map(want):
        return pa.types.is_map(got) and same_type(got.key_type, want.key_type) and same_type(got.item_type, want.item_type)
    if pa.types.is_list(want):
        return pa.types.is_list(got) and same_type(got.value_type, want.value_type)
    return got == want


@check(52)
def metadata_kept(t):
    before = None
    for version, actions in sorted(t.actions.items()):
        for name, fields in actions:
            if name != "metaData":
                continue
            columns = {path: f["metadata"] for path, f in fields_of(json.loads(fields["schemaString"]))}
            if before and before[0]["id"] == fields["id"]:
                lost = set(before[0]["configuration"]) - set(fields["configuration"])
                if lost:
                    yield f"version {version} drops the properties {sorted(lost)}"
                for path, kept in before[1].items():
                    if path in columns and set(kept) - set(columns[path]):
                        yield f"version {version} drops metadata of {'.'.join(path)}: {sorted(set(kept) - set(columns[path]))}"
            before = fields, columns


def comparable(state):
    """Returns a state as texts, without what a checkpoint may change."""
    def texts(actions):
        return sorted(json.dumps({k: x for k, x in a.items() if k != "dataChange" and x not in (None, {})}, sort_keys=True) for a in actions)

    return {
        "protocol": texts([state.protocol]), "metaData": texts([state.metadata]), "adds": texts(state.files.values()),
        "txns": texts(state.txns.values()), "domains": texts(state.domains.values()),
    }


@check(53)
def checkpoints_equal(t):
    for version in t.checkpoints:
        if 0 not in t.commits:
            continue
        want, state = comparable(t.state(version)), t.state(version, from_checkpoint=version)
        if state.unknown:
            yield f"the checkpoint of version {version} has rows with {state.unknown[0]}"
        got = comparable(state) if state.protocol and state.metadata else {}
        for part, texts_ in want.items():
            if got.get(part) != texts_:
                yield f"the checkpoint of version {version} has other {part} than the log"


@check(55)
def hint(t):
    path = os.path.join(t.log, "_last_checkpoint")
    if not os.path.exists(path):
        return  # a writer may have ended before it wrote the hint
    with open(path, encoding="utf-8") as f:
        said = json.load(f)
    if said["version"] not in t.checkpoints:
        yield f"_last_checkpoint names version {said['version']}, of which there is no checkpoint"
    elif said["size"] != len(t.checkpoint(said["version"])):
        yield f"_last_checkpoint says {said['size']} actions"


@check(57)
def tombstones(t):
    """A checkpoint has the removes younger than the retention, and lastUpdated of txns."""
    for version in t.checkpoints:
        if 0 not in t.commits:
            continue
        kept = t.state(version, from_checkpoint=version)
        newest = max(f.get("timestamp", 0) for n in range(version + 1) for name, f in t.actions[n] if name == "commitInfo")
        week = 7 * 24 * 3600 * 1000
        for path, remove in t.state(version).removed.items():
            if remove.get("deletionTimestamp", 0) > newest - week + 3600_000 and path not in kept.removed:
                yield f"the checkpoint of version {version} lacks the remove of {path}"


@check(58)
def features(t):
    for version in [None, *t.checkpoints]:
        state = t.state(version, from_checkpoint=version) if version is not None else t.whole()
        protocol = state.protocol or {}
        for key, limit, level in (("readerFeatures", 3, "minReaderVersion"), ("writerFeatures", 7, "minWriterVersion")):
            if protocol and (key in protocol) != (protocol[level] >= limit):
                yield f"{'checkpoint ' + str(version) if version is not None else 'log'}: {key} with {level} {protocol[level]}"


@check(59)
def tail(t):
    if 0 not in t.commits and min(t.commits) > max(t.checkpoints, default=-1):
        yield f"the log begins with version {min(t.commits)}, and no checkpoint is at or after it"


@check(60)
def checksums(t):
    for version, said in crcs(t):
        base = None if 0 in t.commits else max((c for c in t.checkpoints if c <= version), default=None)
        if 0 not in t.commits and base is None:
            continue
        state = t.state(version, base)
        sums = {"numFiles": len(state.files), "tableSizeBytes": sum(a["size"] for a in state.files.values())}
        for key, want in sums.items():
            if said.get(key) != want:
                yield f"{version}.crc says {key} {said.get(key)}, the log {want}"


def findings(path, only=None):
    """Yields (number, text) of what is wrong with a table."""
    table = Table(path)
    for number, function in sorted(CHECKS.items()):
        if only is None or number in only:
            for text in function(table):
                yield number, text


# What the writers of other programs may do within the protocol.
OURS = {3, 9, 10, 27, 32, 33, 35, 36, 38, 44}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--foreign", action="store_true")
    args.add_argument("--json", help="write the number of tables and findings of each check to this file")
    args.add_argument("tables", nargs="+")
    a = args.parse_args()
    checks = set(CHECKS) - (OURS if a.foreign else set())
    count = dict.fromkeys(sorted(checks), 0)
    for path in a.tables:
        try:
            for number, text in findings(path, checks):
                count[number] += 1
                print(f"{path}: check {number}: {text}")
        except Exception as e:
            print(f"{path}: cannot be checked: {type(e).__name__}: {e}")
            count["unchecked"] = count.get("unchecked", 0) + 1
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"tables": len(a.tables), "findings": count}, f)
    bad = sum(count.values())
    print(f"{len(a.tables)} tables, {len(checks)} checks, {bad} findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
