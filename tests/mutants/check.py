#!/usr/bin/env python3
"""Checks the list of planted bugs without building anything. Every old text occurs exactly once in its file, all targets and
tests exist, ids are unique, and there are enough bugs. Prints every mistake; exit status 1 if there is any.

  check.py ROOT
"""
import sys

import bug_list


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        bugs = bug_list.read_bugs()
        found = bug_list.mistakes(sys.argv[1], bugs)
    except bug_list.ListError as error:
        bugs, found = [], [str(error)]
    print("\n".join(found) if found else f"mutants: {len(bugs)} bugs, all of them can be planted")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
