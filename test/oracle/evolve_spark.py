"""Alters a table as Spark does: evolve_spark.py --table FOLDER --step N --type string|bigint|double. Without --step it prints the
rows as Spark reads them, a line of JSON for each."""

import argparse
import json

import sparksession
from evolverows import values, without_nulls


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--step", type=int)
    parser.add_argument("--type", default="string")
    a = parser.parse_args()
    spark = sparksession.start()
    if a.step is None:
        for row in spark.read.format("delta").load(a.table).collect():
            print(json.dumps(without_nulls(row.asDict(recursive=True)), default=str))
        return
    name = f"p{a.step}"
    spark.sql(f"ALTER TABLE delta.`{a.table}` ADD COLUMNS ({name} {a.type})")
    ids = [1000 * (a.step + 1) + i for i in range(3)]
    rows = spark.createDataFrame([(i, values(a.type, i)) for i in ids], f"id bigint, {name} {a.type}")
    rows.write.format("delta").mode("append").save(a.table)


if __name__ == "__main__":
    main()
