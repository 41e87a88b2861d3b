"""Runs a block of Python that a page of docs/ shows: block.py FOLDER FILE, with the folder as the current one."""

import os
import runpy
import sys

folder, file = sys.argv[1:]
os.chdir(folder)
runpy.run_path(file)
