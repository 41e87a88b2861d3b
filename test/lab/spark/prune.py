"""Removes from a folder of jars those that pyspark ships itself. usage: prune.py FOLDER"""

import os
import re
import sys

import pyspark


def base(jar):
    """Returns the name of a jar without its version."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar)


folder = sys.argv[1]
shipped = {base(jar) for jar in os.listdir(os.path.join(os.path.dirname(pyspark.__file__), "jars"))}
for jar in sorted(os.listdir(folder)):
    if base(jar) in shipped or base(jar).startswith("hadoop-client"):
        os.remove(os.path.join(folder, jar))
