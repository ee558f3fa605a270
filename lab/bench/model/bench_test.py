#!/usr/bin/env python3
"""coppice-bench prints a line of JSON for each measurement, and refuses what it does not know. Speed is not tested."""
import json
import subprocess
import sys

PROGRAM, MODEL = sys.argv[1:]


def run(*arguments, status=0):
    result = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    assert result.returncode == status, (arguments, result)
    return [json.loads(line) for line in result.stdout.splitlines()] if status == 0 else result.stderr


def main():
    few = ("--repetitions=1", "--types=bf16,int8")
    lines = run("model", f"--model={MODEL}", "--rows=1,3", "--prefill=40", "--prefill_chunk=16", "--context=20", *few)
    assert [line["what"] for line in lines] == ["load", "generation", "generation", "prefill"] * 2, lines
    for line in lines:
        if line["what"] == "load":
            assert line["peak_mb"] >= line["resident_mb"] > 1, line
        else:
            assert line["tokens_per_s"] > 0 and line["weights"] in ("bf16", "int8"), line
    assert all(line["of_peak"] > 0 for line in lines if line["what"] == "prefill"), lines
    assert lines[1]["rows"] == 1 and lines[1]["times_first"] == 1, lines[1]

    lines = run("forest", f"--model={MODEL}", "--nodes=4,9", "--beams=2", "--contexts=30,50", *few)
    assert [(line["context"], line["nodes"]) for line in lines] == [(30, 4), (30, 9), (50, 4), (50, 9)] * 2, lines
    assert all(line["ms"] > 0 and line["one_row_ms"] > 0 for line in lines), lines

    lines = run("prefix", f"--model={MODEL}", "--rows=3", "--contexts=64", "--context=20", "--repetitions=1", "--types=bf16")
    assert [(line["what"], line["context"]) for line in lines] == [("short", 20), ("common", 84), ("separate", 84)], lines
    short, common, separate = (line["kv_mb"] for line in lines)  # of 21 tokens in each layer, and 64 more, once or thrice
    assert abs(common / short - (3 * 21 + 64) / (3 * 21)) < 1e-3, lines
    assert abs(separate / short - (21 + 64) / 21) < 1e-3, lines

    assert "expected model, forest, prefix or kernels" in run("speed", status=2)
    assert "expected model, forest, prefix or kernels" in run(status=2)
    products = [line for line in run("kernels", "--repetitions=1", "--types=int4,q4_k", "--rows=2", "--context=1") if "product" in line["what"]]
    assert [line["what"] for line in products] == [f"product {shape} {type}" for type in ("int4", "q4_k")
                                                   for shape in ("qkv", "output", "gate_up", "down")], products

    assert "--types: 'int3'" in run("kernels", "--types=int3", status=2)
    assert "--nodes: '0'" in run("forest", "--nodes=0", status=2)


if __name__ == "__main__":
    main()
