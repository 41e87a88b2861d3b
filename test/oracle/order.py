"""Checks that the offsets of a partition ascend by version, then by the order of adds, then by row of the file.

Reads the log's JSON and the Parquet files by itself, without any Delta reader.
"""

import json
import os
import re
import urllib.parse

import pyarrow.fs
import pyarrow.parquet


def open_table(url, endpoint):
    """Returns a file system and the table's path in it."""
    if not endpoint:
        return pyarrow.fs.LocalFileSystem(), os.path.abspath(url.removeprefix("file://"))
    s3 = pyarrow.fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region=os.environ["AWS_REGION"],
        endpoint_override=endpoint.removeprefix("http://"),
        scheme="http",
    )
    return s3, url.removeprefix("s3://")


def commits(fs, path):
    """Yields version and actions of each commit, in order. A hole in the versions is an error."""
    listed = fs.get_file_info(pyarrow.fs.FileSelector(f"{path}/_delta_log"))
    names = sorted(info.base_name for info in listed if re.fullmatch(r"\d{20}\.json", info.base_name))
    for expected, name in enumerate(names):
        if int(name[:20]) != expected:
            raise ValueError(f"the log has {name} where version {expected} should be")
        with fs.open_input_stream(f"{path}/_delta_log/{name}") as stream:
            yield expected, [json.loads(line) for line in stream.read().splitlines() if line]


def check(url, endpoint):
    """Returns the number of rows, files and rows out of order, with examples."""
    fs, path = open_table(url, endpoint)
    last = {}
    found = {"rows": 0, "files": 0, "disordered": 0, "examples": []}
    for version, actions in commits(fs, path):
        for add in (action["add"] for action in actions if "add" in action):
            name = urllib.parse.unquote(add["path"])
            columns = ["_kafka_topic", "_kafka_partition", "_kafka_offset"]
            rows = pyarrow.parquet.read_table(f"{path}/{name}", filesystem=fs, columns=columns)
            found["files"] += 1
            found["rows"] += rows.num_rows
            for topic, partition, offset in zip(*[rows.column(c).to_pylist() for c in columns]):
                if offset <= last.get((topic, partition), -1):
                    found["disordered"] += 1
                    if found["disordered"] <= 5:
                        found["examples"].append(f"{topic}/{partition}@{offset} in {name} of version {version}")
                last[topic, partition] = offset
    return found
