"""Tests the validator: it accepts a table that is right, and of each broken one it reports exactly the check that the defect
is about. The table is made here, with pyarrow and json.

usage: selftest.py FOLDER
"""

import copy
import datetime
import decimal
import json
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq

import deltacheck

LAST, NOW = "\U0010ffff", 1_750_000_000_000
ID = "kd1:p:c:orders:id:0"


def field(name, kind, nullable=True, **metadata):
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


SCHEMA = {
    "type": "struct",
    "fields": [
        field("id", "long", nullable=False), field("day", "date"), field("text", "string", comment="a text"), field("x", "double"),
        field("amount", "decimal(38,2)"), field("at", "timestamp"), field("raw", "binary"), field("flag", "boolean"),
        field("s", {"type": "struct", "fields": [field("f", "integer"), field("g", "string")]}),
        field("tags", {"type": "array", "elementType": "string", "containsNull": True}),
    ],
}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("x", pa.float64()), ("amount", pa.decimal128(38, 2)),
        ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary()), ("flag", pa.bool_()),
        ("s", pa.struct([("f", pa.int32()), ("g", pa.string())])), ("tags", pa.list_(pa.string())),
    ]
)


def instant(micros):
    return datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(microseconds=micros)


ROWS = [
    {
        "id": 1, "text": "a" * 40, "x": -0.0, "amount": decimal.Decimal("123456789012345678901234567890123456.78"), "at": instant(1),
        "raw": b"\0", "flag": True, "s": {"f": 5, "g": "ab"}, "tags": ["t", None],
    },
    {"id": 2, "text": "b" + LAST * 40, "x": 0.0, "amount": decimal.Decimal("-0.01"), "at": instant(1999), "s": None, "tags": []},
    {"id": 3, "text": None, "x": None, "amount": None, "at": None, "s": {"f": None, "g": "z"}},
]
STATS = {
    "numRecords": 3,
    "minValues": {
        "id": 1, "text": "a" * 32, "x": deltacheck.decimal.Decimal("-0.0"), "amount": decimal.Decimal("-0.01"),
        "at": "2025-01-01T00:00:00.000Z", "flag": True, "s": {"f": 5, "g": "ab"},
    },
    "maxValues": {
        "id": 3, "x": decimal.Decimal("0.0"), "amount": decimal.Decimal("123456789012345678901234567890123456.78"),
        "at": "2025-01-01T00:00:00.002Z", "flag": True, "s": {"f": 5, "g": "z"},
    },
    "nullCount": {
        "id": 0, "text": 1, "x": 1, "amount": 1, "at": 1, "raw": 2, "flag": 2, "s": {"f": 2, "g": 1}, "tags": 1,
    },
}


def dumps(x):
    """Returns JSON with the digits of decimals as they are."""
    if isinstance(x, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dumps(v)}" for k, v in x.items()) + "}"
    if isinstance(x, list):
        return "[" + ",".join(map(dumps, x)) + "]"
    return str(x) if isinstance(x, decimal.Decimal) else json.dumps(x)


class Good:
    """A right table as data, which a defect changes before it is written."""

    def __init__(self):
        self.rows = copy.deepcopy(ROWS)
        self.stats = copy.deepcopy(STATS)
        self.schema = copy.deepcopy(SCHEMA)
        self.arrow = ARROW
        self.columns = {}  # what replaces columns of rows
        self.partitions = ["day"]
        self.key = "day=2025-01-01/part a.parquet"
        self.values = {"day": "2025-01-01"}
        self.float_statistics = False
        self.list_statistics = False
        self.actions = lambda commits: None  # a defect of the actions
        self.files = lambda folder: None  # a defect of what was written
        self.checkpoint = lambda rows: None

    def write(self, folder):
        log = os.path.join(folder, "_delta_log")
        os.makedirs(log)
        path = os.path.join(folder, self.key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        leaves = ["id", "text", "amount", "at", "flag", "s.f", "s.g"] + ["x"] * self.float_statistics
        leaves += ["tags.list.element"] * self.list_statistics
        table = pa.Table.from_pylist(self.rows, self.arrow)
        for name, column in self.columns.items():
            table = table.set_column(table.schema.get_field_index(name), self.arrow.field(name), column)
        pq.write_table(table, path, write_statistics=leaves)
        add = {
            "path": self.key.replace(" ", "%20"), "partitionValues": self.values, "size": os.path.getsize(path),
            "modificationTime": NOW, "dataChange": True, "stats": dumps(self.stats),
        }
        info = {"timestamp": NOW, "operation": "WRITE"}
        metadata = {
            "id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(self.schema),
            "partitionColumns": self.partitions, "configuration": {"delta.appendOnly": "false"}, "createdTime": NOW,
        }
        commented = metadata | {"configuration": metadata["configuration"] | {"owner": "x"}}

        def ranges(start, end, rows=0):
            part = {"topic": "orders", "partition": 0, "from": start, "next": end, "rows": rows}
            return info | {"txnId": str(end), "sluice": {"ranges": [part]}}

        commits = [
            [["commitInfo", info | {"txnId": "a"}], ["protocol", {"minReaderVersion": 1, "minWriterVersion": 2}], ["metaData", metadata]],
            [["commitInfo", ranges(0, 3, 3)], ["txn", {"appId": ID, "version": 3, "lastUpdated": NOW}], ["add", add]],
            [["commitInfo", ranges(3, 4)], ["txn", {"appId": ID, "version": 4, "lastUpdated": NOW}], ["metaData", commented]],
            [
                ["commitInfo", info | {"txnId": "r"}],
                ["remove", {"path": "gone.parquet", "dataChange": True, "deletionTimestamp": NOW, "partitionValues": {"day": None}, "size": 1}],
            ],
            [["commitInfo", ranges(4, 5)], ["txn", {"appId": ID, "version": 5, "lastUpdated": NOW}]],
        ]
        self.actions(commits)
        for version, actions in enumerate(commits):
            with open(f"{log}/{version:020}.json", "w", encoding="utf-8") as f:
                f.writelines(json.dumps({name: fields}, ensure_ascii=False) + "\n" for name, fields in actions)
        state = deltacheck.Table(folder).state(3)
        rows = [{"protocol": state.protocol}, {"metaData": state.metadata}]
        rows += [{"txn": x} for x in state.txns.values()] + [{"add": x} for x in state.files.values()]
        rows += [{"remove": x} for x in state.removed.values()]
        self.checkpoint(rows)
        pq.write_table(checkpoint_table(rows), f"{log}/{3:020}.checkpoint.parquet")
        with open(f"{log}/_last_checkpoint", "w") as f:
            json.dump({"version": 3, "size": len(rows)}, f)
        size = sum(a["size"] for a in state.files.values())
        with open(f"{log}/{3:020}.crc", "w") as f:
            json.dump({"tableSizeBytes": size, "numFiles": len(state.files)}, f)
        self.files(folder)


def checkpoint_table(rows):
    text, long, strings = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        [
            ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", pa.list_(text))])),
            (
                "metaData",
                pa.struct(
                    [
                        ("id", text), ("format", pa.struct([("provider", text), ("options", strings)])), ("schemaString", text),
                        ("partitionColumns", pa.list_(text)), ("configuration", strings), ("createdTime", long), ("description", text),
                    ]
                ),
            ),
            ("txn", pa.struct([("appId", text), ("version", long), ("lastUpdated", long)])),
            (
                "add",
                pa.struct(
                    [
                        ("path", text), ("partitionValues", strings), ("size", long), ("modificationTime", long), ("dataChange", pa.bool_()),
                        ("stats", text),
                    ]
                ),
            ),
            (
                "remove",
                pa.struct([("path", text), ("dataChange", pa.bool_()), ("deletionTimestamp", long), ("partitionValues", strings), ("size", long)]),
            ),
        ]
    )
    return pa.Table.from_pylist([{k: plain(v) for k, v in row.items()} for row in rows], schema)


def plain(fields):
    """Returns maps as pairs, as pyarrow wants them."""
    fields = dict(fields)
    for key in ("partitionValues", "configuration"):
        if key in fields:
            fields[key] = list(fields[key].items())
    if "format" in fields:
        fields["format"] = {"provider": fields["format"]["provider"], "options": list(fields["format"]["options"].items())}
    return fields


DEFECTS = []


def defect(*numbers):
    """A defect that exactly these checks must report: mostly one."""
    def add(function):
        DEFECTS.append((set(numbers), function.__name__, function))
        return function

    return add


def in_actions(numbers):
    def add(function):
        def apply(good):
            good.actions = function

        DEFECTS.append(({numbers}, function.__name__, apply))
        return function

    return add


def in_files(number):
    def add(function):
        def apply(good):
            good.files = function

        DEFECTS.append(({number}, function.__name__, apply))
        return function

    return add


def commit(folder, version):
    return f"{folder}/_delta_log/{version:020}.json"


def rewrite(path, change):
    with open(path, "rb") as f:
        text = f.read()
    with open(path, "wb") as f:
        f.write(change(text))


@in_files(1)
def a_gap_in_the_versions(folder):
    os.rename(commit(folder, 4), commit(folder, 5))


@in_files(1)
def a_short_name(folder):
    os.rename(commit(folder, 4), f"{folder}/_delta_log/4.json")


@in_files(2)
def no_newline_at_the_end(folder):
    rewrite(commit(folder, 4), lambda text: text[:-1])


@in_files(2)
def a_byte_order_mark_in_a_commit(folder):
    rewrite(commit(folder, 4), lambda text: text.replace(b'"operation": "WRITE"', b'"operation": "\xff"'))


@in_actions(3)
def info_is_not_first(commits):
    commits[4].reverse()


@in_actions(3)
def a_txn_id_twice(commits):
    commits[4][0][1]["txnId"] = "a"


@in_actions(4)
def a_txn_twice_in_a_commit(commits):
    commits[4].append(copy.deepcopy(commits[4][1]))


@in_actions(5)
def a_wrong_size(commits):
    commits[1][2][1]["size"] += 1


@in_files(5)
def a_missing_file(folder):
    shutil.rmtree(f"{folder}/day=2025-01-01")


@in_actions(6)
def a_path_that_is_not_encoded(commits):
    commits[1][2][1]["path"] = commits[1][2][1]["path"].replace("%20", " ")


@in_actions(7)
def no_partition_value(commits):
    commits[1][2][1]["partitionValues"] = {}


@defect(8)
def the_partition_column_in_the_file(good):
    good.arrow = good.arrow.append(pa.field("day", pa.date32()))
    for row in good.rows:
        row["day"] = datetime.date(2025, 1, 1)


@in_actions(9)
def a_txn_without_last_updated(commits):
    del commits[4][1][1]["lastUpdated"]


@in_actions(10)
def a_gap_between_ranges(commits):
    commits[4][0][1]["sluice"]["ranges"][0]["from"] = 5


@in_actions(10)
def a_txn_that_is_not_at_the_end(commits):
    commits[4][1][1]["version"] = 6


@defect(22)
def a_text_that_is_not_utf8(good):
    values = pa.array([b"t\xff", None]).view(pa.string())
    good.columns = {"tags": pa.ListArray.from_arrays(pa.array([0, 2, 2, 2], pa.int32()), values, mask=pa.array([False, False, True]))}


@defect(27)
def a_leaf_without_statistics(good):
    del good.stats["nullCount"]["raw"]


@in_actions(28)
def a_commit_of_nothing(commits):
    del commits[3][1:]


@defect(27, 38)
def statistics_of_an_excluded_column(good):
    good.actions = lambda commits: change_metadata(commits, {"description": 'without statistics: [["text"]]'})


@defect(32)
def texts_longer_than_the_property_says(good):
    properties = {"delta.appendOnly": "false", "delta.dataSkippingStringPrefixLength": "8"}
    good.actions = lambda commits: change_metadata(commits, {"configuration": properties})


def change_metadata(commits, fields):
    for actions in commits:
        for name, old in actions:
            if name == "metaData":
                old |= fields


@defect(30)
def a_null_in_a_required_column(good):
    good.arrow = good.arrow.set(0, pa.field("id", pa.int64()))
    good.rows[0]["id"], good.stats["minValues"]["id"], good.stats["nullCount"]["id"] = None, 2, 1


@defect(31)
def a_minimum_above_a_value(good):
    good.stats["minValues"]["s"]["f"] = 6


@defect(31)
def a_time_rounded_down(good):
    good.stats["maxValues"]["at"] = "2025-01-01T00:00:00.001Z"


@defect(31)
def a_text_cut_off(good):
    good.stats["maxValues"]["s"]["g"] = "y"


@defect(32)
def a_long_minimum(good):
    good.stats["minValues"]["text"] = "a" * 31


@defect(32)
def a_maximum_beyond_the_limit(good):
    good.stats["maxValues"]["text"] = "b" + LAST * 41


@defect(33)
def a_positive_zero(good):
    good.stats["minValues"]["x"] = decimal.Decimal("0.0")


@defect(33)
def a_maximum_beside_nan(good):
    good.rows[1]["x"] = float("nan")


@defect(34)
def a_wrong_null_count(good):
    good.stats["nullCount"]["s"]["f"] = 1


@defect(34)
def a_wrong_number_of_rows(good):
    good.stats["numRecords"] = 4


@defect(35)
def bounds_of_a_binary(good):
    good.stats["minValues"]["raw"] = "A"


@defect(35)
def statistics_of_a_partition_column(good):
    good.stats["nullCount"]["day"] = 0


@defect(36)
def a_rounded_decimal(good):
    good.stats["maxValues"]["amount"] = decimal.Decimal("123456789012345678901234567890123457")


@defect(38)
def a_footer_with_bounds_of_floats(good):
    good.float_statistics = True


@defect(38)
def a_footer_with_bounds_of_a_list(good):
    good.list_statistics = True


@defect(40)
def an_empty_partition_value(good):
    good.values = {"day": ""}


@defect(41)
def a_date_in_another_form(good):
    good.values = {"day": "1.1.2025"}


@defect(44)
def a_long_key(good):
    good.key = "/".join(["d" * 200] * 5) + "/part a.parquet"


@defect(47)
def names_that_differ_in_case(good):
    good.schema["fields"][8]["type"]["fields"].append(field("F", "integer"))
    good.stats["nullCount"]["s"]["F"] = 3


@defect(48)
def a_name_with_a_space(good):
    good.schema["fields"].append(field("a b", "integer"))


@defect(49)
def a_narrower_type_in_the_file(good):
    good.arrow = good.arrow.set(0, pa.field("id", pa.int32(), nullable=False))


@in_actions(52)
def a_dropped_property(commits):
    commits[2][2][1]["configuration"] = {}


@in_actions(52)
def a_dropped_comment(commits):
    commits[2][2][1]["schemaString"] = commits[2][2][1]["schemaString"].replace('"comment": "a text"', "")


@defect(53)
def a_checkpoint_with_an_old_txn(good):
    def change(rows):
        next(row["txn"] for row in rows if "txn" in row)["version"] = 3

    good.checkpoint = change


@in_files(55)
def a_hint_at_no_checkpoint(folder):
    rewrite(f"{folder}/_delta_log/_last_checkpoint", lambda text: text.replace(b'"version": 3', b'"version": 2'))


@defect(57)
def a_checkpoint_without_a_remove(good):
    good.checkpoint = lambda rows: rows.pop()


@in_actions(58)
def features_of_protocol_one(commits):
    commits[0][1][1]["readerFeatures"] = []


@in_files(59)
def a_log_without_a_checkpoint_below(folder):
    for version in range(4):
        os.remove(commit(folder, version))
    # The checkpoint is of version 3; a log that begins with 5 lacks version 4.
    shutil.copy(commit(folder, 4), commit(folder, 5))
    os.remove(commit(folder, 4))
    os.remove(f"{folder}/_delta_log/{3:020}.crc")


@in_files(60)
def a_wrong_checksum(folder):
    rewrite(f"{folder}/_delta_log/{3:020}.crc", lambda text: text.replace(b'"numFiles": 1', b'"numFiles": 2'))


def main():
    root, bad = sys.argv[1], 0
    for wanted, name, apply in [(set(), "good", lambda good: None)] + DEFECTS:
        folder = os.path.join(root, name)
        good = Good()
        apply(good)
        good.write(folder)
        found = list(deltacheck.findings(folder))
        if {number for number, _ in found} != wanted:
            bad += 1
            print(f"{name}: want check {wanted}, found {found}")
    untested = set(deltacheck.CHECKS) - set().union(*(wanted for wanted, _, _ in DEFECTS))
    if untested:
        bad += 1
        print(f"no defect for the checks {sorted(untested)}")
    print(f"{len(DEFECTS)} defects for {len(deltacheck.CHECKS)} checks, {bad} not as expected")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
