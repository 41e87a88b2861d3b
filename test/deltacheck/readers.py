"""The independent readers of the conformance matrix. Each opens a table at a version and returns all rows as Arrow, or
the coordinates of those that a predicate selects; its own pruning decides what it reads for that.

refuses() names the defects of a reader that no table can avoid: the predicates on which it is not judged."""

import glob
import json
import os
import subprocess
import sys
import urllib.parse

import predicates
import values as v


NEGATIVE_ZERO = v.bits(-0.0)
COORDINATES = ["_kafka_partition", "_kafka_offset"]


class Reader:
    needs_hint = False  # true for readers by delta-kernel-rs

    def refuses(self, case, predicate):
        """Returns the reader's defect that a predicate meets, None for most."""
        return None

    def refuses_table(self, case):
        """Returns the reader's defect for which it may fail on a table, None for most. It may not return wrong rows."""
        return None


def lacks_bounds(kind):
    """Reports whether a struct contains a field of a type without bounds: an array, a map, a binary."""
    return "element" in kind or kind.get("kind") == "binary" or any(lacks_bounds(f["type"]) for f in kind.get("fields", []))


class DataFusion(Reader):
    """delta-rs with DataFusion, by SQL."""

    needs_hint = True
    title, order = "deltalake, SQL", predicates.SQL

    def __init__(self):
        import deltalake

        self.version = deltalake.__version__
        self.deltalake = deltalake

    def open(self, path, version):
        import pyarrow as pa

        table = self.deltalake.DeltaTable(path, version=version)
        self.builder = self.deltalake.QueryBuilder().register("t", table)
        self.result = lambda query: pa.RecordBatchReader.from_stream(self.builder.execute(query)).read_all()

    def rows(self):
        return self.result("select * from t")

    def select(self, predicate):
        return pairs(self.result(f"select _kafka_partition, _kafka_offset from t where {predicates.datafusion(predicate)}"))


class PyArrow(Reader):
    """delta-rs reads the log and prunes by its statistics, Arrow C++ reads the files."""

    needs_hint = True
    title, order = "deltalake, pyarrow", predicates.IEEE

    def __init__(self):
        import deltalake
        import pyarrow

        self.version = f"{deltalake.__version__}, pyarrow {pyarrow.__version__}"
        self.deltalake = deltalake

    def open(self, path, version):
        self.dataset = self.deltalake.DeltaTable(path, version=version).to_pyarrow_dataset()

    def rows(self):
        return self.dataset.to_table()

    def refuses(self, case, predicate):
        path, kind, op, args = predicate
        if "nan" in args:
            return "compares statistics with NaN as if NaN were a number"
        if len(path) == 1 and unbounded(case, path[0]):
            return "takes a bound that the statistics leave out for null, and skips the file"
        return None

    def select(self, predicate):
        return pairs(self.dataset.to_table(columns=COORDINATES, filter=predicates.pyarrow(predicate)))


class Polars(Reader):
    """Polars with its own Parquet reader; delta-rs reads the log."""

    needs_hint = True
    title, order = "Polars", predicates.SQL

    def __init__(self):
        import polars

        self.version = polars.__version__
        self.polars = polars

    def open(self, path, version):
        self.frame = self.polars.scan_delta(path, version=version)

    def refuses_table(self, case):
        if not all(names_partitions(path, columns) for path, columns in data_files(case)):
            return "takes partition values from the paths of files, and fails if a name in a path is escaped or stands for a hash"
        return None

    def rows(self):
        return self.frame.collect().to_arrow()

    def refuses(self, case, predicate):
        top = next(c["type"] for c in case["columns"] if c["name"] == predicate[0][0])
        if "fields" in top and lacks_bounds(top):
            return "fails on a predicate on a struct that contains an array, a map or a binary, which have no bounds"
        return None

    def select(self, predicate):
        return pairs(self.frame.filter(predicates.polars(predicate)).select(COORDINATES).collect().to_arrow())


class DuckDB(Reader):
    """DuckDB with its delta extension (delta-kernel-rs)."""

    needs_hint = True
    title, order = "DuckDB", predicates.SQL

    def __init__(self):
        import duckdb

        self.version = duckdb.__version__
        self.con = duckdb.connect()
        self.con.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
        self.con.execute("SET TimeZone='UTC'; SET enable_progress_bar=false")
        folder = f"{os.path.dirname(os.path.dirname(duckdb.__file__))}/duckdb_extension_delta/extensions/v{self.version}"
        self.con.execute(f"LOAD '{folder}/delta.duckdb_extension'")

    def open(self, path, version):
        self.table = f"delta_scan('{path}'" + (f", version={version})" if version is not None else ")")

    def refuses(self, case, predicate):
        return splits_names(predicate)

    def rows(self):
        return self.con.sql(f"select * from {self.table}").to_arrow_table()

    def select(self, predicate):
        query = f"select _kafka_partition, _kafka_offset from {self.table} where {predicates.duckdb(predicate)}"
        return pairs(self.con.sql(query).to_arrow_table())


class Spark(Reader):
    """Spark with delta-spark."""

    title, order, workers = "Spark", predicates.SQL, 4

    def __init__(self):
        sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "oracle"))
        import importlib.metadata

        import sparksession

        # The rows are few and the schemas many: compiling a program for each query costs more than running it.
        # No table is opened twice, so its state need not stay in memory.
        self.spark = sparksession.start(
            memory="3g",
            settings={
                "spark.databricks.delta.delta.log.cacheSize": "16",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.shuffle.partitions": "1",
                "spark.databricks.delta.snapshotPartitions": "1",
                "spark.sql.ui.retainedExecutions": "1",
            }
        )
        self.version = f"{self.spark.version}, delta-spark {importlib.metadata.version('delta-spark')}"

    def open(self, path, version):
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        self.frame = reader.load(path)

    def refuses(self, case, predicate):
        if predicate[2] in ("=", "in") and NEGATIVE_ZERO in predicate[3]:
            return "misses 0.0 for -0.0 in the dictionary of a row group, and skips the row group (parquet-mr)"
        return None

    def rows(self):
        return self.frame.toArrow()

    def select_all(self, made):
        """Runs all predicates in one job, because a job costs more than a scan."""
        from functools import reduce

        from pyspark.sql.functions import lit

        parts = [self.frame.where(predicates.spark(p)).select(lit(i).alias("q"), *COORDINATES) for i, p in enumerate(made)]
        found = [set() for _ in made]
        for row in reduce(lambda a, b: a.union(b), parts).toArrow().to_pylist():
            found[row["q"]].add((row["_kafka_partition"], row["_kafka_offset"]))
        return found


class Kernel(Reader):
    """delta-kernel in Java with its default engine. A predicate only skips files and row groups: the caller filters the
    rows, so a result may have more rows than the predicate selects."""

    title, order, skips = "delta-kernel, Java", predicates.SQL, True

    def __init__(self):
        self.process = subprocess.Popen(
            [os.environ["LAB_KERNEL"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.version = self.ask({"ask": "version"})

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def refuses(self, case, predicate):
        path, kind, op, args = predicate
        if NEGATIVE_ZERO in (args[-1:] if op == "between" else args) and op not in ("<", ">="):
            return "reads the bound -0.0 as 0.0, and so misses zeros for = -0.0 and <= -0.0"
        return splits_names(predicate)

    def open(self, path, version):
        self.table = {"table": path} | ({"version": version} if version is not None else {})

    def rows(self):
        return self.ask(self.table | {"ask": "rows"})

    def select(self, predicate):
        path, kind, op, args = predicate
        request = {"path": path, "kind": kind.get("kind", ""), "op": op, "values": args}
        return {tuple(pair) for pair in self.ask(self.table | {"ask": "select", "predicate": request})}


def splits_names(predicate):
    if "." in "".join(predicate[0]):
        return "splits the name of a column in a predicate at the dot"
    return None


def unbounded(case, name):
    """Reports whether a data file with values in a column lacks one of its two bounds, or has no statistics of a column
    that the table's properties count among those with statistics."""
    if "unbounded" not in case:
        case["unbounded"] = found = set()
        most, partitions = 32, []
        for path in sorted(glob.glob(os.path.join(glob.escape(case["path"]), "_delta_log", "*.json"))):
            with open(path, encoding="utf-8") as f:
                actions = [json.loads(line) for line in f]
            for metadata in [a["metaData"] for a in actions if "metaData" in a]:
                most = int(metadata.get("configuration", {}).get("delta.dataSkippingNumIndexedCols", most))
                partitions = metadata["partitionColumns"]
            adds = [a["add"] for a in actions if "add" in a]
            for stats in [json.loads(a["stats"]) for a in adds]:
                found |= {c for c in indexed(case, most, partitions) if not bounded(stats, c)}
    return name in case["unbounded"]


def data_files(case):
    """Yields the path of each data file and the partition columns of the table."""
    columns = []
    for path in sorted(glob.glob(os.path.join(glob.escape(case["path"]), "_delta_log", "*.json"))):
        with open(path, encoding="utf-8") as f:
            for action in map(json.loads, f):
                columns = action.get("metaData", {}).get("partitionColumns", columns)
                if "add" in action:
                    yield urllib.parse.unquote(action["add"]["path"]), columns


def names_partitions(path, columns):
    folders = path.split("/")[:-1]
    return len(folders) == len(columns) and all(f.startswith(c + "=") for f, c in zip(folders, columns))


def indexed(case, most, partitions):
    """Returns the plain columns among the first leaves of a table that are no partition columns."""
    count, result = 0, []
    for path, kind in v.leaves(case["columns"]):
        if "fields" in kind or path[0] in partitions:
            continue
        if len(path) == 1 and "kind" in kind and (most < 0 or count < most):
            result.append(path[0])
        count += 1
    return result


def bounded(stats, column):
    nulls = stats.get("nullCount", {}).get(column)
    if nulls is None:
        return False
    return nulls == stats["numRecords"] or column in stats["minValues"] and column in stats["maxValues"]


def pairs(table):
    """Returns the coordinates of rows as a set of pairs."""
    return set(zip(*(table.column(name).to_pylist() for name in COORDINATES)))


READERS = {"datafusion": DataFusion, "pyarrow": PyArrow, "polars": Polars, "duckdb": DuckDB, "spark": Spark, "kernel": Kernel}
