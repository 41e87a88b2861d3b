"""A local Spark with Delta, and S3 if there is an endpoint."""

import glob
import os

from pyspark.sql import SparkSession


def start(endpoint=None, memory="2g", settings=None):
    """Returns a session on two cores. Jars lie in the folder that LAB_SPARK_JARS names. settings are further ones."""
    jars = ":".join(sorted(glob.glob(os.path.join(os.environ["LAB_SPARK_JARS"], "*.jar"))))
    more = settings or {}
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.extraClassPath": jars,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    } | more
    if endpoint:
        s3a = "spark.hadoop.fs.s3a."
        settings |= {
            s3a + "endpoint": endpoint,
            s3a + "endpoint.region": os.environ["AWS_REGION"],
            s3a + "path.style.access": "true",
            s3a + "connection.ssl.enabled": "false",
            s3a + "access.key": os.environ["AWS_ACCESS_KEY_ID"],
            s3a + "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
            s3a + "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }
    builder = SparkSession.builder.master("local[2]").appName("oracle")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
