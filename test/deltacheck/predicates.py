"""Predicates on the columns of a case: made from its rows, judged outside of the engines, written for each engine.

A predicate is (path, kind, op, values): op is one of = < >= in between null notnull.
"""

import decimal
import math
import random

import values as v

# How engines compare floats. By IEEE 754, NaN equals nothing. In SQL, NaN equals itself and is the greatest.
IEEE, SQL = "ieee", "sql"


def comparable(kind):
    return "kind" in kind and kind["kind"] != "binary"


def native(kind, value):
    """Returns a value in the form that Python orders as engines do."""
    name = kind["kind"]
    if value is None:
        return None
    if name in ("float", "double"):
        return v.number(value)
    if name == "string":
        return value.encode()
    if name.startswith("decimal"):
        return decimal.Decimal(value)
    return value


def make(case, most):
    """Returns at most so many predicates of a case; the name of the case is the seed."""
    chance = random.Random(case["name"])
    result = []
    for path, kind in v.leaves(case["columns"]):
        if path[0].startswith("_kafka_") and path[0] != "_kafka_offset":
            continue
        mine = [(path, kind, "null", ()), (path, kind, "notnull", ())]
        if comparable(kind):
            found = {v.at(case["columns"], row, path) for row in case["rows"]} - {None}
            found = [x for x in sorted(found) if usable(kind["kind"], x)]
            for value in some(kind, found, chance):
                mine += [(path, kind, op, (value,)) for op in (["="] if kind["kind"] == "boolean" else ["=", "<", ">="])]
            if len(found) > 1 and kind["kind"] != "boolean":
                two = chance.sample(found, 2)
                mine += [(path, kind, "in", tuple(two))]
                if not any(x == "nan" for x in two):
                    mine += [(path, kind, "between", tuple(sorted(two, key=lambda x: native(kind, x))))]
        result.append(mine)
    # Each column gets its share.
    for mine in result:
        chance.shuffle(mine)
    flat = [p for turn in range(max(map(len, result), default=0)) for mine in result for p in mine[turn : turn + 1]]
    return flat[:most]


def usable(name, x):
    """Reports whether each engine has a literal for a value: its years must be those of Python, from 1 to 9999."""
    if name == "date":
        return -719162 <= x <= 2932896
    if name.startswith("timestamp"):
        return -62135596800_000000 <= x <= 253402300799_999999
    return not (isinstance(x, str) and ("\x00" in x or len(x) > 1000))


def some(kind, found, chance):
    """Returns the bounds of the values, one between them and one beside them."""
    if not found:
        return []
    ordered = sorted(found, key=lambda x: (x == "nan", native(kind, x) if x != "nan" else 0))
    picked = [ordered[0], ordered[-1], chance.choice(ordered)]
    name, high = kind["kind"], ordered[-1]
    limit = {"bigint": 63, "int": 31, "smallint": 15, "tinyint": 7}.get(name)
    if limit and high < 2**limit - 1 or name.startswith("timestamp") and high < 253402300799_000000:
        picked.append(high + 1)
    elif name == "string":
        picked.append(high + "~")
    elif name in ("float", "double"):
        picked += [v.bits(0.0), v.bits(-0.0), "nan"]
    return list(dict.fromkeys(picked))


def selected(case, predicate, order):
    """Returns the coordinates of the rows that a predicate selects, when floats are compared by this order."""
    path, kind, op, args = predicate
    wanted = [_key(kind, x, order) for x in args]
    result = set()
    for row in case["rows"]:
        value = v.at(case["columns"], row, path)
        if value is None or op in ("null", "notnull"):
            keep = op == ("null" if value is None else "notnull")
        else:
            keep = _holds(op, _key(kind, value, order), wanted)
        if keep:
            result.add((row[1], row[2]))
    return result


def _key(kind, value, order):
    x = native(kind, value)
    if not isinstance(x, float):
        return x
    if order == IEEE:
        return x
    if math.isnan(x):
        return (1, 0)
    return (0, x)


def _holds(op, x, args):
    if op == "=":
        return x == args[0]
    if op == "<":
        return x < args[0]
    if op == ">=":
        return x >= args[0]
    if op == "in":
        return any(x == a for a in args)
    return args[0] <= x <= args[1]


def _sql(predicate, column, literal):
    path, kind, op, args = predicate
    if op == "null":
        return f"{column} IS NULL"
    if op == "notnull":
        return f"{column} IS NOT NULL"
    texts = [literal(kind["kind"], a) for a in args]
    if op == "in":
        return f"{column} IN ({', '.join(texts)})"
    if op == "between":
        return f"({column} >= {texts[0]} AND {column} <= {texts[1]})"
    return f"{column} {op} {texts[0]}"


def _double_quoted(name):
    return '"' + name.replace('"', '""') + '"'


def _single_quoted(text):
    return "'" + text.replace("'", "''") + "'"


def datafusion(predicate):
    """Returns a predicate in DataFusion's SQL."""
    types = {
        "bigint": "Int64", "int": "Int32", "smallint": "Int16", "tinyint": "Int8", "double": "Float64", "float": "Float32",
    }

    def literal(kind, value):
        if kind == "string":
            return _single_quoted(value)
        if kind == "boolean":
            return str(value).lower()
        if kind == "date":
            return f"arrow_cast(arrow_cast({value}, 'Int32'), 'Date32')"
        if kind == "timestamp":
            return f"arrow_cast({value}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        if kind == "timestamp_ntz":
            return f"arrow_cast({value}, 'Timestamp(Microsecond, None)')"
        if kind.startswith("decimal"):
            return f"arrow_cast('{value}', 'Decimal128{kind[7:]}')"
        text = repr(v.number(value)) if kind in ("double", "float") else value
        return f"arrow_cast('{text}', '{types[kind]}')"

    path = predicate[0]
    column = _double_quoted(path[0]) + "".join(f"[{_single_quoted(name)}]" for name in path[1:])
    return _sql(predicate, column, literal)


def _cast(kind, value, types):
    text = repr(v.number(value)) if kind in ("double", "float") else value
    return f"CAST('{text}' AS {types.get(kind, kind)})"


def duckdb(predicate):
    """Returns a predicate in DuckDB's SQL."""

    def literal(kind, value):
        if kind == "string":
            return _single_quoted(value)
        if kind == "boolean":
            return str(value).lower()
        if kind == "date":
            return f"DATE '{v.day(value).isoformat()}'"
        if kind == "timestamp":
            return f"TIMESTAMPTZ '{v.instant(value).isoformat(' ')}'"
        if kind == "timestamp_ntz":
            return f"TIMESTAMP '{v.instant(value).replace(tzinfo=None).isoformat(' ')}'"
        return _cast(kind, value, {"float": "REAL"})

    return _sql(predicate, ".".join(map(_double_quoted, predicate[0])), literal)


def spark(predicate):
    """Returns a predicate in Spark's SQL."""

    def literal(kind, value):
        if kind == "string":
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        if kind == "boolean":
            return str(value).lower()
        if kind == "date":
            return f"DATE '{v.day(value).isoformat()}'"
        if kind == "timestamp":
            return f"timestamp_micros({value})"
        if kind == "timestamp_ntz":
            return f"TIMESTAMP_NTZ '{v.instant(value).replace(tzinfo=None).isoformat(' ')}'"
        return _cast(kind, value, {})

    column = ".".join("`" + name.replace("`", "``") + "`" for name in predicate[0])
    return _sql(predicate, column, literal)


def polars(predicate):
    """Returns a predicate as a Polars expression."""
    import polars as pl

    path, kind, op, args = predicate
    types = {
        "bigint": pl.Int64, "int": pl.Int32, "smallint": pl.Int16, "tinyint": pl.Int8, "double": pl.Float64, "float": pl.Float32,
        "string": pl.String, "boolean": pl.Boolean,
    }
    column = pl.col(path[0])
    for name in path[1:]:
        column = column.struct.field(name)
    if op == "null":
        return column.is_null()
    if op == "notnull":
        return column.is_not_null()

    def literal(value):
        name = kind["kind"]
        if name == "date":
            return pl.lit(v.day(value))
        if name == "timestamp":
            return pl.lit(value).cast(pl.Datetime("us", "UTC"))
        if name == "timestamp_ntz":
            return pl.lit(value).cast(pl.Datetime("us"))
        if name.startswith("decimal"):
            return pl.lit(decimal.Decimal(value))
        return pl.lit(v.number(value) if name in ("double", "float") else value, dtype=types[name])

    literals = [literal(a) for a in args]
    if op == "in":
        return (column == literals[0]) | (column == literals[1])
    if op == "between":
        return (column >= literals[0]) & (column <= literals[1])
    return {"=": column.eq, "<": column.lt, ">=": column.ge}[op](literals[0])


def pyarrow(predicate):
    """Returns a predicate as an expression of pyarrow.dataset."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    path, kind, op, args = predicate
    types = {
        "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(), "tinyint": pa.int8(), "double": pa.float64(),
        "float": pa.float32(), "string": pa.string(), "boolean": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }
    column = ds.field(*path)
    if op == "null":
        return column.is_null()
    if op == "notnull":
        return column.is_valid()

    def literal(value):
        name = kind["kind"]
        if name in ("double", "float"):
            value = v.number(value)
        if name == "date":
            value = v.day(value)
        if name.startswith("decimal"):
            precision, scale = map(int, name[8:-1].split(","))
            return pa.scalar(decimal.Decimal(value), pa.decimal128(precision, scale))
        return pa.scalar(value, types[name])

    literals = [literal(a) for a in args]
    if op == "in":
        return (column == literals[0]) | (column == literals[1])
    if op == "between":
        return (column >= literals[0]) & (column <= literals[1])
    return {"=": column.__eq__, "<": column.__lt__, ">=": column.__ge__}[op](literals[0])
