"""The rows of a table whose schema grows, for all programs that write and read it."""


def values(kind, i):
    """Returns the value of a column of a kind in the row with an id."""
    return {"string": f"v{i}", "bigint": i, "double": i / 2}[kind]


def without_nulls(row):
    """Returns a row without the columns of Kafka and without nulls, also within structs."""
    kept = {}
    for name, value in row.items():
        if isinstance(value, dict):
            value = without_nulls(value) or None
        if value is not None and not name.startswith("_kafka_"):
            kept[name] = value
    return kept
