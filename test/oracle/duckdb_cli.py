"""Executes SQL as the program duckdb does: duckdb_cli.py -c SQL.

INSTALL and LOAD use the extensions of the readers' environment in place of downloads.
"""

import os
import re
import sys

import duckdb

flag, sql = sys.argv[1:]
if flag != "-c":
    sys.exit("usage: duckdb_cli.py -c SQL")
site = os.path.dirname(os.path.dirname(duckdb.__file__))
con = duckdb.connect()
con.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
con.execute("SET TimeZone='UTC'; SET enable_progress_bar=false")


def load(match):
    name = match.group(1)
    return f"LOAD '{site}/duckdb_extension_{name}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'"


for statement in con.extract_statements(re.sub(r"\bLOAD (\w+)", load, re.sub(r"\bINSTALL \w+;", "", sql))):
    result = con.sql(statement.query)
    if result is not None:
        result.show()
