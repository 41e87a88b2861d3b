"""Values as the generator writes them down: null, bool, int (integers, days, microseconds), str (texts, digits of a
decimal, hexadecimal bytes, and the bits of a float), lists (structs, arrays) and lists of pairs (maps).

A column is {"name": ..., "type": type}; a type is {"kind": name}, {"fields": columns}, {"element": type} or
{"key": type, "element": type}.
"""

import datetime
import json
import math
import struct

import pyarrow as pa
import pyarrow.compute as pc


def of_arrow(array, kind):
    """Returns the values of an Arrow array of a column of this type."""
    if isinstance(array, pa.ChunkedArray):
        return [v for chunk in array.chunks for v in of_arrow(chunk, kind)]
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if "fields" in kind:
        return _structs(array, kind)
    if "key" in kind:
        return _maps(array, kind)
    if "element" in kind:
        return _lists(array, kind)
    return _plain(array, kind["kind"])


def _structs(array, kind):
    valid = array.is_valid().to_pylist()
    children = dict(zip([f.name for f in array.type], array.flatten()))
    columns = [of_arrow(children[f["name"]], f["type"]) for f in kind["fields"]]
    return [[c[i] for c in columns] if ok else None for i, ok in enumerate(valid)]


def _lists(array, kind):
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = array.cast(pa.large_list(array.type.value_type))
    lengths = pc.list_value_length(array).to_pylist()
    values = iter(of_arrow(array.flatten(), kind["element"]))
    return [None if n is None else [next(values) for _ in range(n)] for n in lengths]


def _maps(array, kind):
    pair = {"fields": [{"name": "key", "type": kind["key"]}, {"name": "value", "type": kind["element"]}]}
    if pa.types.is_map(array.type):
        entries = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
        array = array.cast(pa.list_(entries))
    rows = _lists(array, {"element": pair})
    return [None if row is None else sorted(row, key=lambda p: json.dumps(p[0])) for row in rows]


def _plain(array, name):
    kind = array.type
    if name == "date":
        array = array.cast(pa.date32()).cast(pa.int32())
    elif name in ("timestamp", "timestamp_ntz"):
        if (kind.tz is None) != (name == "timestamp_ntz"):
            raise TypeError(f"a column of type {name} is read as {kind}")
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif name == "string":
        # As bytes, because a wrong writer may store what is not UTF-8.
        return [None if v is None else v.decode("utf-8", "surrogateescape") for v in array.cast(pa.large_binary()).to_pylist()]
    values = array.to_pylist()
    if name in ("float", "double"):
        return [None if v is None else bits(v) for v in values]
    if name == "binary":
        return [None if v is None else bytes(v).hex() for v in values]
    if name.startswith("decimal"):
        return [None if v is None else f"{v:f}" for v in values]
    expected = bool if name == "boolean" else int
    for v in values:
        if v is not None and type(v) is not expected:
            raise TypeError(f"a column of type {name} is read as {kind}")
    return values


def bits(x):
    """Returns a float as the generator writes it."""
    return "nan" if math.isnan(x) else struct.pack(">d", x).hex()


def number(text):
    """Returns the float of bits(x)."""
    return math.nan if text == "nan" else struct.unpack(">d", bytes.fromhex(text))[0]


def leaves(columns, above=()):
    """Yields path and type of each leaf. Arrays and maps count as leaves."""
    for c in columns:
        path = above + (c["name"],)
        if "fields" in c["type"]:
            yield path, c["type"]
            yield from leaves(c["type"]["fields"], path)
        else:
            yield path, c["type"]


def at(columns, row, path):
    """Returns the value of a row at a path, None below a null struct."""
    value = row
    for name in path:
        if value is None:
            return None
        i = next(i for i, c in enumerate(columns) if c["name"] == name)
        value, columns = value[i], columns[i]["type"].get("fields")
    return value


def instant(micros):
    """Returns a datetime in UTC."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(microseconds=micros)


def day(days):
    """Returns a date."""
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
