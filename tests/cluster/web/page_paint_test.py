#!/usr/bin/env python3
"""When the page at / is painted first in headless Chromium, compared with a page of one line, and how many bytes it has."""
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
from page_fixture import Page, run_tests  # noqa: E402

FIRST_PAINT_MS = 100

# Bytes of the page and its files, as they came.
WEIGHT = """return performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))
.filter((entry) => !/[/](v1|cluster|ready)/.test(entry.name)).reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""


class Paint(Page):
    @classmethod
    def setUpClass(cls):
        cls.serve()

    def test_the_first_paint_comes_soon(self):
        """On a machine that has time for it. What a line of JSON takes here says how much of it has."""
        times, floor, weight = [], [], 0
        for _ in range(5):
            self.browser.open(self.address + "version")
            floor.append(self.painted_after())
            self.visit()
            times.append(self.painted_after())
            weight = weight or self.browser.run(WEIGHT)
        print(f"first paint after {', '.join(f'{t:.0f}' for t in sorted(times))} ms; of a line of JSON after {', '.join(f'{t:.0f}' for t in sorted(floor))} ms")
        self.assertLess(min(times), max(FIRST_PAINT_MS, 4 * min(floor)))
        print(f"the page weighs {weight} bytes compressed")
        self.assertGreater(weight, 10000)
        self.assertLess(weight, 60 << 10)

    def painted_after(self):
        return self.browser.wait_for("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")


if __name__ == "__main__":
    run_tests("page_paint_test")
