"""Reads a Delta table: its log as it lies there, the state that the log means, and the values of its data files. It
shares no code with the writer: json, pyarrow and this folder only."""

import glob
import json
import os
import re
import urllib.parse

import pyarrow as pa
import pyarrow.parquet as pq

import values

NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def kind_of(delta):
    """Returns a type of a schema string in the form of values.py."""
    if isinstance(delta, str):
        return {"kind": NAMES.get(delta, delta)}
    if delta["type"] == "struct":
        return {"fields": columns_of(delta)}
    if delta["type"] == "array":
        return {"element": kind_of(delta["elementType"])}
    return {"key": kind_of(delta["keyType"]), "element": kind_of(delta["valueType"])}


def columns_of(struct):
    return [{"name": f["name"], "type": kind_of(f["type"]), "required": not f["nullable"]} for f in struct["fields"]]


class Table:
    """A table on the local disk."""

    def __init__(self, path):
        self.path = path
        self.log = os.path.join(path, "_delta_log")
        self.names = sorted(os.listdir(self.log))
        self.commits = {}  # version to its raw bytes
        self.actions = {}  # version to its actions, [(name, fields)]
        for name in self.names:
            if re.fullmatch(r"\d+\.json", name):
                with open(os.path.join(self.log, name), "rb") as f:
                    self.commits[int(name[:-5])] = f.read()
        for version, raw in sorted(self.commits.items()):
            self.actions[version] = list(parse(raw))
        self.checkpoints = sorted(int(n[:20]) for n in self.names if re.fullmatch(r"\d{20}\.checkpoint\.parquet", n))
        self.newest = max(self.commits)
        self.data = {}

    def state(self, version=None, from_checkpoint=None):
        """Returns the state of a version: from JSON alone, or from a checkpoint and the JSON after it."""
        version = self.newest if version is None else version
        state = State()
        first = min(self.commits)
        if from_checkpoint is not None:
            for row in self.checkpoint(from_checkpoint):
                state.apply(row)
            first = from_checkpoint + 1
        for n in range(first, version + 1):
            for action in self.actions.get(n, []):
                state.apply(action)
        return state

    def whole(self):
        """Returns the newest state; from a checkpoint if the log does not begin with version 0."""
        return self.state(from_checkpoint=None if 0 in self.commits else self.checkpoints[-1])

    def checkpoint(self, version):
        """Returns the actions of a checkpoint, without the fields that are null."""
        rows = pq.read_table(os.path.join(self.log, f"{version:020}.checkpoint.parquet")).to_pylist()
        result = []
        for row in rows:
            present = [(name, bare(name, fields)) for name, fields in row.items() if fields is not None]
            result += present if len(present) == 1 else [("not exactly one action", row)]
        return result

    def adds(self):
        """Yields (version, add) of each commit of the log that is there."""
        for version, actions in self.actions.items():
            for name, fields in actions:
                if name == "add":
                    yield version, fields

    def file(self, add):
        """Returns a data file, read once."""
        if add["path"] not in self.data:
            self.data[add["path"]] = DataFile(self.key(add["path"]))
        return self.data[add["path"]]

    def key(self, uri):
        """Returns the path on the disk of a path in the log, which is a relative URI."""
        return os.path.join(self.path, urllib.parse.unquote(uri))


def parse(raw):
    for line in raw.decode("utf-8", "replace").splitlines():
        try:
            action = json.loads(line, parse_float=Number, parse_constant=Number)
            yield next(iter(action.items())) if len(action) == 1 else ("not one action", action)
        except (ValueError, AttributeError):
            yield "not JSON", line


class Number(float):
    """A number of a JSON text, with its text: a decimal has more digits than a float."""

    def __new__(cls, text):
        x = super().__new__(cls, text)
        x.text = text
        return x


def bare(name, fields):
    """Returns the fields of a checkpoint's action in the form that JSON has."""
    fields = {k: v for k, v in fields.items() if v is not None}
    for key in ("partitionValues", "configuration", "tags"):
        if isinstance(fields.get(key), list):
            fields[key] = dict(fields[key])
    if name == "metaData" and isinstance(fields["format"].get("options"), list):
        fields["format"]["options"] = dict(fields["format"]["options"])
    return fields


class State:
    """What the log says: the actions that no later one has replaced."""

    def __init__(self):
        self.protocol = self.metadata = None
        self.files, self.removed, self.txns, self.domains, self.unknown = {}, {}, {}, {}, []

    def apply(self, action):
        name, fields = action
        if name == "protocol":
            self.protocol = fields
        elif name == "metaData":
            self.metadata = fields
        elif name == "txn":
            self.txns[fields["appId"]] = fields
        elif name == "domainMetadata":
            self.domains[fields["domain"]] = fields
        elif name == "add":
            self.removed.pop(fields["path"], None)
            self.files[fields["path"]] = fields
        elif name == "remove":
            self.files.pop(fields["path"], None)
            self.removed[fields["path"]] = fields
        else:
            self.unknown.append(name)

    def columns(self):
        return columns_of(json.loads(self.metadata["schemaString"]))


class DataFile:
    def __init__(self, path):
        self.size = os.path.getsize(path)
        self.parquet = pq.ParquetFile(path)
        self.rows = self.parquet.metadata.num_rows

    def column(self, name, kind):
        """Returns the values of a column, None for one that the file does not have."""
        index = self.parquet.schema_arrow.get_field_index(name)
        if index < 0:
            return None
        return values.of_arrow(self.parquet.read(columns=None).column(name), self.present(kind, name))

    def present(self, kind, name):
        return restrict(kind, self.parquet.schema_arrow.field(name).type)

    def table(self):
        if not hasattr(self, "content"):
            self.content = self.parquet.read()
        return self.content


def restrict(kind, arrow):
    """Returns a type without the fields of structs that the file does not have."""
    if "fields" in kind:
        have = {f.name: f.type for f in arrow}
        return {"fields": [f | {"type": restrict(f["type"], have[f["name"]])} for f in kind["fields"] if f["name"] in have]}
    if "element" in kind and "key" not in kind:
        return {"element": restrict(kind["element"], arrow.value_type)}
    return kind


def leaves_of(file, columns):
    """Yields (path, kind, values, nulls) of each leaf that Delta counts. Values below a null struct are None."""
    table = file.table()
    for c in columns:
        index = table.schema.get_field_index(c["name"])
        if index < 0:
            yield from absent(c, (), file.rows)
            continue
        kind = restrict(c["type"], table.schema.field(index).type)
        rows = values.of_arrow(table.column(index), kind)
        yield from inner((c["name"],), c["type"], kind, rows)


def inner(path, declared, kind, rows):
    if "fields" not in declared:
        yield path, declared, rows
        return
    have = [f["name"] for f in kind["fields"]]
    for f in declared["fields"]:
        if f["name"] in have:
            i = have.index(f["name"])
            yield from inner(path + (f["name"],), f["type"], kind["fields"][i]["type"], [r and r[i] for r in rows])
        else:
            yield from absent(f, path, len(rows))


def absent(c, above, rows):
    for path, kind in values.leaves([c], above):
        if "fields" not in kind:
            yield path, kind, [None] * rows


def fields_of(struct, above=()):
    """Yields (path, field) of each field of a schema string at every level, those in arrays and maps too."""
    for f in struct["fields"]:
        yield above + (f["name"],), f
        yield from nested(f["type"], above + (f["name"],))


def nested(kind, path):
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            yield from fields_of(kind, path)
        for key in ("elementType", "keyType", "valueType"):
            if key in kind:
                yield from nested(kind[key], path + (key,))


def structs_of(kind):
    """Yields each struct of a schema string."""
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            yield kind
            for f in kind["fields"]:
                yield from structs_of(f["type"])
        for key in ("elementType", "keyType", "valueType"):
            yield from structs_of(kind.get(key))


def sidecars(table):
    """Returns the names in the log that are not commits."""
    return [n for n in table.names if not re.fullmatch(r"\d+\.json", n)]


def crcs(table):
    """Yields (version, content) of the checksum files."""
    for path in glob.glob(os.path.join(glob.escape(table.log), "*.crc")):
        with open(path, encoding="utf-8") as f:
            yield int(os.path.basename(path)[:20]), json.load(f)


ARROW = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(), "tinyint": pa.int8(),
    "double": pa.float64(), "float": pa.float32(), "boolean": pa.bool_(), "date": pa.date32(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}


def arrow_of(kind):
    """Returns the Arrow type of a Parquet column of a type."""
    if "fields" in kind:
        return pa.struct([pa.field(f["name"], arrow_of(f["type"])) for f in kind["fields"]])
    if "key" in kind:
        return pa.map_(arrow_of(kind["key"]), arrow_of(kind["element"]))
    if "element" in kind:
        return pa.list_(arrow_of(kind["element"]))
    if kind["kind"].startswith("decimal"):
        return pa.decimal128(*map(int, kind["kind"][8:-1].split(",")))
    return ARROW[kind["kind"]]
