"""Reads the tables of the generator with one independent reader and compares rows and predicates with the expectation.

usage: matrix.py --cases DIR --reader NAME --out FILE [--predicates N] [--only PREFIX]

Writes one JSON line for each case: the number of rows and predicates, what differs ("wrong"), and the error if the
reader refuses the table ("refused"). Exits 1 if anything differs or is refused. If FILE has right results of the same
cases and reader from a run that was stopped, they stay, and only the other cases are read.
"""

import argparse
import collections
import concurrent.futures
import copy
import glob
import json
import os
import shutil
import sys

import predicates
import values
from readers import READERS


def load(folder):
    """Returns the cases of a run, and those derived from them."""
    with open(os.path.join(folder, "cases.json")) as f:
        names = json.load(f)["cases"]
    cases = []
    for name in names:
        with open(os.path.join(folder, name + ".json")) as f:
            case = json.load(f)
        case["path"] = os.path.join(folder, name)
        cases.append(case)
    for case in [c for c in cases if c["name"] == "checkpoint"]:
        cases += checkpoint_variants(case, folder)
        cases += past_versions(case)
    return cases


def checkpoint_variants(case, folder):
    """Returns copies of a table with checkpoints: without the JSON below it, and with damaged hints."""

    def only_checkpoint(log, newest):
        for n in range(newest):  # log cleanup keeps the commit of the checkpoint: delta-kernel in Java needs it
            os.remove(f"{log}/{n:020}.json")

    def missing_hint(log, newest):
        os.remove(f"{log}/_last_checkpoint")

    def stale_hint(log, newest):
        oldest = min(int(os.path.basename(p)[:20]) for p in glob.glob(f"{log}/*.checkpoint.parquet"))
        with open(f"{log}/_last_checkpoint", "w") as f:
            json.dump({"version": oldest, "size": 1}, f)

    def corrupt_hint(log, newest):
        with open(f"{log}/_last_checkpoint", "w") as f:
            f.write('{"version":')

    def deleted_checkpoint(log, newest):
        os.remove(f"{log}/{newest:020}.checkpoint.parquet")

    made = len(glob.glob(os.path.join(case["path"], "_delta_log", "*.checkpoint.parquet")))
    result = []
    for check, change in [
        (54, only_checkpoint), (55, missing_hint), (55, stale_hint), (55, corrupt_hint), (55, deleted_checkpoint),
    ]:
        if change is deleted_checkpoint and made < 2:
            continue  # without an older checkpoint, no program could have deleted the commits below
        name = "checkpoint-" + change.__name__.replace("_", "-")
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            part = f"{path}.{os.getpid()}"  # several readers may start at once
            shutil.copytree(case["path"], part)
            log = os.path.join(part, "_delta_log")
            newest = max(int(os.path.basename(p)[:20]) for p in glob.glob(f"{log}/*.checkpoint.parquet"))
            change(log, newest)
            try:
                os.rename(part, path)
            except OSError:
                if not os.path.exists(path):
                    raise
                shutil.rmtree(part)
        result.append(case | {"name": name, "checks": [check], "path": path})
    return result


def past_versions(case):
    """Returns the case at each of its versions."""
    return [
        case | {"name": f"version-{version}", "checks": [62], "rows": case["rows"][:rows], "version": version}
        for version, rows in case["versions"]
    ]


def in_order(case, row):
    return values.sorted_maps(row, {"fields": case["columns"]})


def row_texts(case, got):
    """Returns the rows that a reader returned as texts."""
    if isinstance(got, list):
        rows = [in_order(case, row) for row in got]
    else:
        names = [c["name"] for c in case["columns"]]
        if sorted(got.column_names) != sorted(names):
            raise ValueError(f"columns {got.column_names}")
        rows = zip(*(values.of_arrow(got.column(c["name"]), c["type"]) for c in case["columns"]))
    return collections.Counter(json.dumps(list(row)) for row in rows)


def compare_rows(case, reader):
    want = collections.Counter(json.dumps(in_order(case, row)) for row in case["rows"])
    got = row_texts(case, reader.rows())
    if want == got:
        return []
    missing, foreign = list((want - got).elements()), list((got - want).elements())
    return [f"{len(missing)} rows missing, {len(foreign)} too many: {missing[:1]} {foreign[:1]}"[:600]]


def compare_predicates(case, reader, made):
    if not made:
        return []
    if hasattr(reader, "select_all"):
        found = reader.select_all(made)
    else:
        found = [reader.select(p) for p in made]
    wrong = []
    for predicate, got in zip(made, found):
        want = predicates.selected(case, predicate, reader.order)
        if want != got and not (getattr(reader, "skips", False) and want <= got):
            path, kind, op, args = predicate
            text = f"{'.'.join(path)} ({kind.get('kind', 'nested')}) {op} {args}"
            wrong.append(f"{text[:200]}: {len(want - got)} rows missing, {len(got - want)} too many")
    return wrong


def run(case, reader, most):
    line = {"case": case["name"], "checks": case["checks"] or [], "rows": len(case["rows"]), "predicates": 0, "wrong": []}
    if case["name"] == "checkpoint-deleted-checkpoint" and reader.needs_hint:
        return line | {"checks": [], "defects": {"refuses a table whose hint names a deleted checkpoint, also if there is an older one": 1}}
    try:
        reader.open(case["path"], case.get("version"))
        line["wrong"] += compare_rows(case, reader)
        made = predicates.make(case, most) if "version" not in case else []
        defects = collections.Counter(filter(None, (reader.refuses(case, p) for p in made)))
        made = [p for p in made if not reader.refuses(case, p)]
        line["predicates"], line["defects"] = len(made), dict(defects)
        line["wrong"] += compare_predicates(case, reader, made)
    except Exception as e:  # an engine may fail in any way; the report has its words
        if defect := reader.refuses_table(case):
            return line | {"checks": [], "predicates": 0, "defects": {defect: 1}}
        line["refused"] = f"{type(e).__name__}: {e}"[:600]
    return line


def finished(path, head):
    """Returns the right results of a run that was stopped, by the name of the case."""
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        lines = f.read().split("\n")[:-1]  # the last line may be a part of one
    if not lines or json.loads(lines[0]) != head:
        return {}
    return {c["case"]: c for c in map(json.loads, lines[1:]) if not c["wrong"] and "refused" not in c}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--cases", required=True)
    args.add_argument("--reader", required=True, choices=READERS)
    args.add_argument("--out", required=True)
    args.add_argument("--predicates", type=int, default=24)
    args.add_argument("--only", default="")
    a = args.parse_args()
    reader = READERS[a.reader]()
    cases = [c for c in load(a.cases) if c["name"].startswith(a.only)]
    with open(os.path.join(a.cases, "cases.json")) as f:
        made = json.load(f)
    head = {"reader": a.reader, "title": reader.title, "version": reader.version, "predicates": a.predicates, "run": made["run"]}
    done = finished(a.out, head)
    total, cases = len(cases), [c for c in cases if c["name"] not in done]
    bad = 0
    with open(a.out, "w") as out:
        for line in [head, *done.values()]:
            print(json.dumps(line), file=out, flush=True)
        # Most of Spark's time is waiting inside of it.
        workers = concurrent.futures.ThreadPoolExecutor(getattr(reader, "workers", 1))
        for case, line in zip(cases, workers.map(lambda c: run(c, copy.copy(reader), a.predicates), cases)):
            print(json.dumps(line), file=out, flush=True)
            if line["wrong"] or "refused" in line:
                bad += 1
                print(f"{a.reader}: {case['name']}: {line.get('refused', '')} {line['wrong'][:3]}", flush=True)
    print(f"{a.reader} {reader.version}: {total} cases, {len(done)} of them in a run before, {bad} with findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
