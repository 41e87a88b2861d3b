"""Independent readers of a Delta table. Each one yields all rows as Arrow and answers predicates with its own pruning."""

import os

import pyarrow as pa

import predicates

COORDINATES = ["_kafka_partition", "_kafka_offset"]


def storage_options(endpoint):
    """Returns delta-rs' options for an S3 server; the login comes from the environment."""
    if not endpoint:
        return {}
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "AWS_SECRET_ACCESS_KEY": os.environ["AWS_SECRET_ACCESS_KEY"],
        "AWS_REGION": os.environ["AWS_REGION"],
    }


def plain(reader):
    """Yields record batches of any Arrow producer."""
    for batch in pa.RecordBatchReader.from_stream(reader):
        yield batch


class DeltaLake:
    """delta-rs with DataFusion."""

    def __init__(self, url, endpoint):
        import deltalake

        self.version = deltalake.__version__
        table = deltalake.DeltaTable(url, storage_options=storage_options(endpoint))
        self.builder = deltalake.QueryBuilder().register("t", table)

    def rows(self):
        return plain(self.builder.execute("select * from t"))

    def select(self, predicate):
        query = f"select {','.join(COORDINATES)} from t where {predicates.datafusion(predicate)}"
        return pa.Table.from_batches(plain(self.builder.execute(query)), _coordinates_schema())


class DuckDB:
    """DuckDB with its delta extension (delta-kernel-rs)."""

    def __init__(self, url, endpoint):
        import duckdb

        self.version = duckdb.__version__
        site = os.path.dirname(os.path.dirname(duckdb.__file__))
        self.con = duckdb.connect()
        self.con.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
        self.con.execute("SET TimeZone='UTC'; SET enable_progress_bar=false")
        for name in ["httpfs", "delta"]:
            folder = f"{site}/duckdb_extension_{name}/extensions/v{self.version}"
            self.con.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
        if endpoint:
            self.con.execute(
                f"""CREATE SECRET s (TYPE s3, KEY_ID '{os.environ["AWS_ACCESS_KEY_ID"]}',
                SECRET '{os.environ["AWS_SECRET_ACCESS_KEY"]}', REGION '{os.environ["AWS_REGION"]}',
                ENDPOINT '{endpoint.removeprefix("http://")}', URL_STYLE 'path', USE_SSL false)"""
            )
        self.table = f"delta_scan('{url}')"

    def rows(self):
        return plain(self.con.sql(f"select * from {self.table}").to_arrow_reader(65536))

    def select(self, predicate):
        query = f"select {','.join(COORDINATES)} from {self.table} where {predicates.duckdb(predicate)}"
        return self.con.sql(query).to_arrow_table()


class Polars:
    """Polars with its own Parquet reader; delta-rs reads the log."""

    def __init__(self, url, endpoint):
        import polars

        self.version = polars.__version__
        self.frame = polars.scan_delta(url, storage_options=storage_options(endpoint))

    def rows(self):
        return self.frame.collect(engine="streaming").to_arrow().to_batches(65536)

    def select(self, predicate):
        return self.frame.filter(predicates.polars(predicate)).select(COORDINATES).collect().to_arrow()


class Spark:
    """Spark with delta-spark."""

    def __init__(self, url, endpoint):
        import sparksession

        self.spark = sparksession.start(endpoint)
        self.version = self.spark.version
        self.frame = self.spark.read.format("delta").load(url.replace("s3://", "s3a://"))

    def rows(self):
        return self.frame.toArrow().to_batches(65536)

    def select(self, predicate):
        return self.frame.where(predicates.spark(predicate)).select(*COORDINATES).toArrow()


def _coordinates_schema():
    return pa.schema([("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


READERS = {"deltalake": DeltaLake, "duckdb": DuckDB, "polars": Polars, "spark": Spark}
