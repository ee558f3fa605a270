#!/usr/bin/env python3
"""The statements of README.md, by number, over plain HTTP: test_17_... tests statement 17.

  conformance_test.py [CLASS.test_NN_...]
"""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import answer_statements  # noqa: E402
import http_statements  # noqa: E402
import lifetime_statements  # noqa: E402
import load_statements  # noqa: E402
from fixture import ConformanceCluster, Statements  # noqa: E402

# Statements whose feature is not served yet. A test that passes must be taken off the list.
EXPECTED_TO_FAIL = []
MODULES = (http_statements, answer_statements, load_statements, lifetime_statements)
shared = None


def setUpModule():
    global shared
    shared = ConformanceCluster()
    shared.__enter__()
    Statements.cluster = shared


def tearDownModule():
    shared.__exit__(None)


class Completeness(Statements):
    def test_every_statement_has_a_test(self):
        page = (pathlib.Path(__file__).resolve().parent / "README.md").read_text(encoding="utf8")
        stated = {int(number) for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE)}
        self.assertEqual(stated, set(range(1, 85)))
        tested = set()
        for found in list(globals().values()):
            if isinstance(found, type) and issubclass(found, Statements):
                for name in vars(found):
                    for number in re.findall(r"(?<=_)\d\d(?=_)", name) if name.startswith("test_") else ():
                        tested.add(int(number))
        self.assertEqual(stated - tested, set())


for module in MODULES:
    for case_name, case in list(vars(module).items()):
        if isinstance(case, type) and issubclass(case, Statements) and case is not Statements:
            case.__module__ = __name__  # its tests share setUpModule
            globals()[case_name] = case
            for test in [name for name in vars(case) if name in EXPECTED_TO_FAIL]:
                setattr(case, test, unittest.expectedFailure(getattr(case, test)))
del case  # or it would be run twice

if __name__ == "__main__":
    unittest.main(verbosity=2)
