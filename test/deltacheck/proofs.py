"""Proves that what refuses() in readers.py leaves out is a defect of the reader: the reader answers the same wrongly for a table
that another program wrote. The day a reader is corrected, its proof fails here, and its line in refuses() must go.

usage: proofs.py FOLDER

The proofs of delta-kernel need its program in the environment variable LAB_KERNEL.
"""

import glob
import os
import sys

import deltalake
import duckdb
import polars
import pyarrow as pa

import readers


def table(folder, name, columns, **options):
    """Writes a table with deltalake and returns its path."""
    path = os.path.join(folder, name)
    n = len(next(iter(columns.values())))
    coordinates = {"_kafka_partition": pa.array([0] * n, pa.int32()), "_kafka_offset": pa.array(range(n), pa.int64())}
    deltalake.write_deltalake(path, pa.table(columns | coordinates), mode="append", **options)
    return path


def without_statistics(column):
    made = deltalake.WriterProperties(column_properties={column: deltalake.ColumnProperties(statistics_enabled="NONE")})
    return {"writer_properties": made}


def answer(reader, path, predicate):
    """Returns the offsets that a reader selects, or the error."""
    r = readers.READERS[reader]()
    try:
        r.open(path, None)
        return sorted(offset for _, offset in r.select(predicate))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def kind(name):
    return {"kind": name}


def deleted_checkpoint(folder):
    """The hint names a deleted checkpoint, and there is an older one."""
    path = os.path.join(folder, "checkpoints")
    for i in range(12):
        table(folder, "checkpoints", {"c": pa.array([i], pa.int64())})
        if i in (5, 10):
            deltalake.DeltaTable(path).create_checkpoint()
    for log in glob.glob(f"{path}/_delta_log/*.json"):
        if int(os.path.basename(log)[:20]) <= 5:
            os.remove(log)
    os.remove(glob.glob(f"{path}/_delta_log/{10:020}.checkpoint*.parquet")[0])
    for name in ("datafusion", "pyarrow", "polars", "duckdb"):
        r = readers.READERS[name]()
        try:
            r.open(path, None)
            yield f"{name} reads {len(r.rows())} rows of a table whose hint names a deleted checkpoint"
        except Exception:
            pass


def missing_bounds(folder):
    path = table(folder, "bounds", {"c": pa.array([1.0, 2.0, None])}, **without_statistics("c"))
    one = readers.v.bits(1.0)
    if answer("pyarrow", path, (("c",), kind("double"), "=", (one,))) != []:
        yield "pyarrow selects rows by a column without bounds"
    if answer("pyarrow", path, (("c",), kind("double"), "null", ())) != []:
        yield "pyarrow selects nulls of a column without statistics"


def listed_columns(folder):
    """What docs/schema.md says to do about it: the property leaves the column out."""
    path = table(
        folder, "listed", {"c": pa.array([1.0, 2.0, None])}, **without_statistics("c"),
        configuration={"delta.dataSkippingStatsColumns": "_kafka_partition,_kafka_offset"},
    )
    one = readers.v.bits(1.0)
    for op, args, want in (("=", (one,), [0]), ("null", (), [2])):
        got = answer("pyarrow", path, (("c",), kind("double"), op, args))
        if got != want:
            yield f"pyarrow selects {got} with delta.dataSkippingStatsColumns, want {want}"


def added_column(folder):
    path = table(folder, "added", {"c": pa.array([1, 2], pa.int64())})
    table(folder, "added", {"c": pa.array([3], pa.int64()), "d": pa.array([4], pa.int64())}, schema_mode="merge")
    r = readers.READERS["pyarrow"]()
    r.open(path, None)
    if len(r.dataset.to_table(filter=readers.predicates.pyarrow((("d",), kind("bigint"), "null", ())))) != 0:
        yield "pyarrow selects the rows of an added column that are null"


def not_a_number(folder):
    path = table(folder, "nan", {"c": pa.array([1.0, 2.0])})
    wrong = [op for op in ("<", ">=", "=") if answer("pyarrow", path, (("c",), kind("double"), op, ("nan",))) != []]
    if not wrong:
        yield "pyarrow compares rightly with NaN"


def struct_with_list(folder):
    column = pa.array([{"f": 1, "l": [1]}, None], pa.struct([("f", pa.int64()), ("l", pa.list_(pa.int64()))]))
    path = table(folder, "list", {"s": column})
    if not isinstance(answer("polars", path, (("s", "f"), kind("bigint"), "=", (1,))), str):
        yield "polars reads a predicate on a struct with a list"


def dotted_name(folder):
    path = table(folder, "dot", {"a.b": pa.array([1, 2, 3], pa.int64())})
    if answer("duckdb", path, (("a.b",), kind("bigint"), "=", (2,))) == [1]:
        yield "duckdb selects by a column whose name has a dot"


def kernel_dotted_name(folder):
    path = table(folder, "kernel-dot", {"a.b": pa.array([1, 2, 3], pa.int64())})
    if answer("kernel", path, (("a.b",), kind("bigint"), "=", (2,))) == [0, 1, 2]:
        yield "kernel reads a predicate on a column whose name has a dot"


def kernel_negative_zero(folder):
    path = table(folder, "kernel-zero", {"c": pa.array([-0.0, 1.0])})
    if 0 in answer("kernel", path, (("c",), kind("double"), "=", (readers.NEGATIVE_ZERO,))):
        yield "kernel selects -0.0 by the bound -0.0"


def main():
    folder, bad = sys.argv[1], 0
    proofs = [deleted_checkpoint, missing_bounds, listed_columns, added_column, not_a_number, struct_with_list, dotted_name]
    if "LAB_KERNEL" in os.environ:
        proofs += [kernel_dotted_name, kernel_negative_zero]
    for proof in proofs:
        for found in proof(folder):
            bad += 1
            print(f"{proof.__name__}: {found}")
    print(f"deltalake {deltalake.__version__}, polars {polars.__version__}, duckdb {duckdb.__version__}: {len(proofs)} proofs, {bad} not as expected")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
