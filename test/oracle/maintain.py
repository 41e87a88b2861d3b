"""Compacts and vacuums a table, as docs/maintenance.md says, and prints what changed.

usage: maintain.py --table URL --endpoint URL
"""

import argparse

from deltalake import DeltaTable

from readers import storage_options


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--endpoint", required=True)
    arguments = parser.parse_args()
    url, options = arguments.table, storage_options(arguments.endpoint)

    table = DeltaTable(url, storage_options=options)
    done = table.optimize.compact()
    table.vacuum(retention_hours=168, dry_run=False)

    print(f"compacted {done['numFilesRemoved']} files into {done['numFilesAdded']}")


if __name__ == "__main__":
    main()
