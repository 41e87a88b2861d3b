"""The ledger of produced records, and the comparison of a table's rows with it."""

import csv
import re

import canon

EXAMPLES = 5
TOPIC_ID = re.compile("[A-Za-z0-9_-]{22}")


class Ledger:
    """Every committed record: {(topic, partition): {offset: hash}}."""

    def __init__(self, path, held=(), lost=(), copies=None):
        """held are (partition, offset) pairs: records from that offset on must be missing. lost are (partition, from,
        next): records at offsets [from, next) must be missing. copies is a file like the ledger with one more column,
        "of": of all records with the same value there, exactly one must have a row."""
        self.entries = {}
        self.copies = {}  # {(topic, partition): {offset: (hash, of)}}
        if copies:
            with open(copies, newline="") as file:
                for row in csv.DictReader(file):
                    at = self.copies.setdefault((row["topic"], int(row["partition"])), {})
                    at[int(row["offset"])] = row["hash"], row["of"]
        limit = dict(held)
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                partition, offset = int(row["partition"]), int(row["offset"])
                if any(p == partition and begin <= offset < end for p, begin, end in lost):
                    continue
                if offset < limit.get(partition, offset + 1):
                    self.entries.setdefault((row["topic"], partition), {})[offset] = row["hash"]

    def compare(self, batches):
        """Compares all rows of a table. Returns counts and examples of differences; if all counts are 0, there are none."""
        left = {key: dict(offsets) for key, offsets in self.entries.items()}
        copied = set()  # the values of "of" that have a row
        found = {"rows": 0, "missing": 0, "foreign": 0, "duplicate": 0, "altered": 0, "examples": []}

        def finding(what, topic, partition, offset):
            found[what] += 1
            if found[what] <= EXAMPLES:
                found["examples"].append(f"{what} {topic}/{partition}@{offset}")

        for batch in batches:
            found["rows"] += batch.num_rows
            ids, batch = topic_ids(batch)
            rows = zip(
                batch.column("_kafka_topic").to_pylist(),
                batch.column("_kafka_partition").to_pylist(),
                batch.column("_kafka_offset").to_pylist(),
                ids,
                canon.hashes(batch),
            )
            for topic, partition, offset, topic_id, row_hash in rows:
                want, of = self.copies.get((topic, partition), {}).get(offset, (None, None))
                if of is None:
                    want = left.get((topic, partition), {}).pop(offset, None)
                elif of in copied:
                    finding("duplicate", topic, partition, offset)
                    continue
                else:
                    copied.add(of)
                if want is None:
                    known = offset in self.entries.get((topic, partition), {})
                    finding("duplicate" if known else "foreign", topic, partition, offset)
                elif want != row_hash or not TOPIC_ID.fullmatch(topic_id or ""):
                    finding("altered", topic, partition, offset)
        for (topic, partition), offsets in left.items():
            for offset in offsets:
                finding("missing", topic, partition, offset)
        for (topic, partition), offsets in self.copies.items():
            for offset, (_, of) in offsets.items():
                if of not in copied:
                    copied.add(of)  # counts once
                    finding("missing", topic, partition, offset)
        return found


def topic_ids(batch):
    """Returns the topic ids of the rows, and the batch without them: the ledger does not know them. A table without the
    column counts as if each row had one."""
    if "_kafka_topic_id" not in batch.schema.names:
        return ["A" * 22] * batch.num_rows, batch
    rest = [name for name in batch.schema.names if name != "_kafka_topic_id"]
    return batch.column("_kafka_topic_id").to_pylist(), batch.select(rest)
