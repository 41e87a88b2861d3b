"""Predicates on every column: made from the data, written for each engine, and judged outside of the engines.

A predicate is (path, op, value): path is a tuple of names, op one of = < >= null notnull length contains.
"""

import datetime

import pyarrow as pa
import pyarrow.compute as pc


def plain(kind):
    """Returns a type with ordinary strings and lists in place of the large and view types that engines return."""
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, plain(f.type)) for f in kind])
    return kind


def plain_table(batches):
    """Returns record batches as a table of plain types."""
    table = pa.Table.from_batches(batches)
    return table.cast(pa.schema([pa.field(f.name, plain(f.type)) for f in table.schema]))


def leaf(table, path):
    """Returns the column of a path, with the nulls of the structs around it."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def leaves(schema):
    """Yields the path and type of each leaf. An array counts as a leaf."""
    for field in schema:
        if pa.types.is_struct(field.type):
            for child in field.type:
                yield (field.name, child.name), child.type
        else:
            yield (field.name,), field.type


def make(table, per_column):
    """Returns predicates on every leaf of a table: on its extremes, on values between them, and on absent ones."""
    result = []
    for path, kind in leaves(table.schema):
        result += [(path, "null", None), (path, "notnull", None)]
        column = leaf(table, path).combine_chunks().drop_null()
        if len(column) == 0:
            continue
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            result += [(path, "length", 0), (path, "length", 2)]
            values = [v for v in pc.unique(column.flatten().drop_null()).to_pylist() if "\x00" not in v]
            result += [(path, "contains", v) for v in spread(sorted(values), per_column)]
            continue
        # A NUL cannot be written in the SQL of every engine.
        values = [v for v in pc.unique(column).to_pylist() if not (isinstance(v, str) and "\x00" in v)]
        for value in spread(sorted(values, key=order), per_column):
            ops = ["="] if pa.types.is_boolean(kind) else ["=", "<", ">="]
            result += [(path, op, value) for op in ops]
        if values and isinstance(values[0], str):
            result += [(path, "=", values[0] + "?"), (path, ">=", max(values, key=order) + "~")]
    return result


def order(value):
    """Strings are ordered by their bytes."""
    return value.encode() if isinstance(value, str) else value


def spread(values, count):
    """Returns the ends of a sorted list and evenly spaced values between them."""
    if len(values) <= count:
        return values
    return [values[i * (len(values) - 1) // (count - 1)] for i in range(count)]


def outside(table, predicate):
    """Returns which rows a predicate selects, by a full scan without any engine."""
    path, op, value = predicate
    column = leaf(table, path)
    if op == "null":
        return pc.is_null(column)
    if op == "notnull":
        return pc.is_valid(column)
    if op == "length":
        return pc.fill_null(pc.equal(pc.list_value_length(column), value), False)
    if op == "contains":
        return pa.array([bool(v) and value in v for v in column.to_pylist()])
    compare = {"=": pc.equal, "<": pc.less, ">=": pc.greater_equal}[op]
    return pc.fill_null(compare(column, pa.scalar(value, column.type)), False)


def _string(value):
    return "'" + value.replace("'", "''") + "'"


def _literal(value, instant, double):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, datetime.datetime):
        return instant(value)
    if isinstance(value, float):
        return double(value)
    return str(value)


def _sql(predicate, column, literal, length, contains):
    path, op, value = predicate
    if op == "null":
        return f"{column} IS NULL"
    if op == "notnull":
        return f"{column} IS NOT NULL"
    if op == "length":
        return f"{length}({column}) = {value}"
    if op == "contains":
        return f"{contains}({column}, {literal(value)})"
    return f"{column} {op} {literal(value)}"


def duckdb(predicate):
    """Returns a predicate in DuckDB's SQL."""
    column = ".".join(f'"{name}"' for name in predicate[0])
    return _sql(
        predicate,
        column,
        lambda v: _literal(v, lambda t: f"TIMESTAMPTZ '{t.isoformat(' ')}'", lambda d: f"CAST('{d!r}' AS DOUBLE)"),
        "len",
        "list_contains",
    )


def datafusion(predicate):
    """Returns a predicate in DataFusion's SQL."""
    path = predicate[0]
    column = f'"{path[0]}"' + "".join(f"['{name}']" for name in path[1:])
    return _sql(
        predicate,
        column,
        lambda v: _literal(
            v,
            lambda t: f"arrow_cast('{t.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
            lambda d: f"CAST('{d!r}' AS DOUBLE)",
        ),
        "cardinality" if predicate[1] != "length" else "array_length",
        "array_has",
    )


def spark(predicate):
    """Returns a predicate in Spark's SQL."""

    def literal(value):
        if isinstance(value, str):
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return _literal(value, lambda t: f"TIMESTAMP '{t.isoformat(' ')}'", lambda d: f"CAST('{d!r}' AS DOUBLE)")

    column = ".".join(f"`{name}`" for name in predicate[0])
    return _sql(predicate, column, literal, "size", "array_contains")


def polars(predicate):
    """Returns a predicate as a Polars expression."""
    import polars as pl

    path, op, value = predicate
    column = pl.col(path[0])
    for name in path[1:]:
        column = column.struct.field(name)
    if op == "null":
        return column.is_null()
    if op == "notnull":
        return column.is_not_null()
    if op == "length":
        return column.list.len() == value
    if op == "contains":
        return column.list.contains(value)
    if isinstance(value, datetime.datetime):
        value = pl.lit(value).dt.cast_time_unit("us")
    return {"=": column.eq, "<": column.lt, ">=": column.ge}[op](value)
