"""What all programs share that alter a growing table, and read it."""

import json
import sys


def values(kind, i):
    """Returns the value of a column of a kind in the row with an id."""
    return {"string": f"v{i}", "bigint": i, "double": i / 2}[kind]


def answer(alter, rows):
    """Answers the requests on stdin, each of which is a line of JSON.

    {"step": N, "type": string|bigint|double} calls alter, which adds the column of the step with that type and appends three
    rows that have it. {"read": READER} prints the rows that the reader sees, without nulls, a line of JSON for each. An empty
    line ends the answer."""
    for line in sys.stdin:
        request = json.loads(line)
        if "step" in request:
            step = request["step"]
            alter(step, request["type"], [1000 * (step + 1) + i for i in range(3)])
        else:
            for row in rows(request["read"]):
                print(json.dumps(_without_nulls(row)))
        print(flush=True)


def _without_nulls(row):
    """Returns a row without the columns of Kafka and without nulls, also within structs."""
    kept = {}
    for name, value in row.items():
        if isinstance(value, dict):
            value = _without_nulls(value) or None
        if value is not None and not name.startswith("_kafka_"):
            kept[name] = value
    return kept
