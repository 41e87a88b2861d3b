"""Alters a table as Spark does, and reads it with Spark, all in one session.

usage: evolve_spark.py TABLE     with requests on stdin: see answer in evolverows.py. The only reader is spark.
"""

import sys

import evolverows
import sparksession


def main(table):
    spark = sparksession.start()

    def alter(step, kind, ids):
        name = f"p{step}"
        spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS ({name} {kind})")
        rows = spark.createDataFrame([(i, evolverows.values(kind, i)) for i in ids], f"id bigint, {name} {kind}")
        rows.coalesce(1).write.format("delta").mode("append").save(table)

    def rows(_reader):
        for row in spark.read.format("delta").load(table).collect():
            yield row.asDict(recursive=True)

    evolverows.answer(alter, rows)


if __name__ == "__main__":
    main(sys.argv[1])
