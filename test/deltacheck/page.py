"""Writes docs/conformance.md from the results of a run.

usage: page.py --run FOLDER --out FILE

FOLDER has cases.json of the generator, validator.json of the validator and READER.jsonl of each reader.
"""

import argparse
import collections
import json
import os

READERS = ["datafusion", "pyarrow", "polars", "duckdb", "spark", "kernel"]
HERE = os.path.dirname(os.path.abspath(__file__))


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


class Result:
    """The lines of one reader."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.head, *self.cases = map(json.loads, f)
        self.rows = sum(c["rows"] for c in self.cases)
        self.predicates = sum(c["predicates"] for c in self.cases)
        self.bad = [c for c in self.cases if c["wrong"] or "refused" in c]
        self.defects = collections.Counter()
        for c in self.cases:
            self.defects.update(c.get("defects", {}))

    def cell(self, check):
        """Returns what the reader shows about a check, "" if it has no case."""
        mine = [c for c in self.cases if check in c["checks"]]
        if check == 37:
            mine = [c for c in self.cases if c["predicates"]]
        if not mine:
            return ""
        bad = sum(1 for c in mine if c["wrong"] or "refused" in c)
        return f"{bad} of {len(mine)} wrong" if bad else f"✓ {len(mine):,}"


def cell(check, validator):
    if str(check) not in validator["findings"]:
        return ""
    bad = validator["findings"][str(check)]
    return f"{bad} findings" if bad else "✓"


def write(run, out):
    checks = load(os.path.join(HERE, "checks.json"))
    cases, validator = load(f"{run}/cases.json"), load(f"{run}/validator.json")
    results = {r: Result(f"{run}/{r}.jsonl") for r in READERS if os.path.exists(f"{run}/{r}.jsonl")}
    titles = [r.head["title"] for r in results.values()]
    p = lambda *text: print(*text, file=out)
    p("# Conformance of the tables\n")
    p(
        "Sluice's tables read the same in every engine that we can run. This page is the result of one run: tables of random schemas and\n"
        "rows, written by Sluice, read by independent engines, and checked by a validator that shares no code with the writer.\n"
    )
    p("```sh\nmake conformance CASES=" + str(cases["random"]) + " SEED=" + str(cases["seed"]) + " WRITE=1\n```\n")
    p(
        f"Seed {cases['seed']}: {len(cases['cases']):,} tables, {cases['random']:,} of them random. The validator checked"
        f" {validator['tables']:,} tables by {len(validator['findings'])} checks: {sum(validator['findings'].values())} findings."
    )
    if cases["absent"]:
        p(f"This version does not write these types, so no table has them: {', '.join(f'`{a}`' for a in cases['absent'])}.")
    p("\n## Readers\n")
    p("Cases are tables, damaged copies of their logs, and old versions. A predicate is one query, which may skip files and row groups.\n")
    p("| reader | version | cases | rows | predicates | wrong or refused |\n|---|---|---|---|---|---|")
    for r in results.values():
        p(f"| {r.head['title']} | {r.head['version']} | {len(r.cases):,} | {r.rows:,} | {r.predicates:,} | {len(r.bad)} |")
    p("\n## Refused by reader\n")
    p("These readers answer some predicates wrongly whatever the writer does. Rows without a predicate are right.\n")
    p("| reader | what it does | predicates left out |\n|---|---|---|")
    for r in results.values():
        for text, n in sorted(r.defects.items()):
            p(f"| {r.head['title']} | {text} | {n:,} |")
    p("\n## Checks\n")
    p(
        "A ✓ stands for no finding, with the number of cases that are about the check. The column `validator` says whether the validator\n"
        "makes the check on each table. Empty cells: the check is not about readers, or a table alone cannot show it.\n"
    )
    section = None
    for c in checks:
        if c["section"] != section:
            section = c["section"]
            p(f"\n### {section}\n")
            p("| # | check | validator | " + " | ".join(titles) + " | tests |")
            p("|---|---|---|" + "---|" * (len(titles) + 1))
        found = [cell(c["id"], validator)] + [r.cell(c["id"]) for r in results.values()]
        tests = ", ".join(f"`{t}`" for t in c.get("tests", []))
        if c.get("absent"):
            tests = "does not apply: " + c["absent"]
        elif not any(found) and not tests:
            tests = "does not apply: this version does not write the type"
        p(f"| {c['id']} | {c['says']} | " + " | ".join(found) + f" | {tests} |")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--run", required=True)
    args.add_argument("--out", required=True)
    a = args.parse_args()
    with open(a.out, "w", encoding="utf-8") as out:
        write(a.run, out)


if __name__ == "__main__":
    main()
