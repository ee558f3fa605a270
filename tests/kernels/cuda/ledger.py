#!/usr/bin/env python3
"""Registers, stack and shared memory of every CUDA kernel, as ptxas reports them, compared with ledger.txt beside this script.

  ledger.py [--write] [KERNEL.cu ...]

Without names: all kernels. Exit status 1 when a line differs, or when any kernel has a stack frame or spills. --write writes the
ledger anew instead, all of it. Needs nvcc, of the version that the ledger's first line names; a minute for each architecture."""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KERNELS = ROOT / "kernels/cuda"
LEDGER = HERE / "ledger.txt"
ARCHITECTURES = ("80", "90")

ENTRY = re.compile(r"Compiling entry function '(?P<name>\w+)' for 'sm_(?P<architecture>\d+)'")
STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
USED = re.compile(r"Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?")


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)


def version():
    return re.search(r"release ([\d.]+)", output("nvcc", "--version").stdout).group(1)


def plain_name(name):
    """Kernel<arguments> without its namespaces and parameters."""
    text = output("c++filt", name).stdout.strip()
    text = re.sub(r"\(anonymous namespace\)::|coppice::kernels::cuda::|\(int\)|^void ", "", text)
    return text.split("(", 1)[0].replace(" ", "")


def lines_of(kernel):
    """The ledger's lines of one .cu file, and those with a stack frame or spills."""
    lines, spilled = [], []
    with tempfile.TemporaryDirectory() as folder:
        report = output("nvcc", "-std=c++20", "-O3", "-Xptxas=-v", f"-I{ROOT}",
                        *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES),
                        "-c", KERNELS / kernel, "-o", f"{folder}/kernel.o").stderr
    entry = stack = None
    for line in report.splitlines():
        if match := ENTRY.search(line):
            entry = match
        elif match := STACK.search(line):
            stack = match
        elif match := USED.search(line):
            lines.append(f"sm_{entry['architecture']} {kernel} {plain_name(entry['name'])}: {match['registers']} registers, "
                         f"{match['shared'] or 0} bytes shared")
            if any(int(stack[part]) for part in ("stack", "stores", "loads")):
                spilled.append(f"{lines[-1]}: {stack.group()}")
    return sorted(lines), spilled


def main():
    names = [name for name in sys.argv[1:] if name != "--write"]
    write = "--write" in sys.argv[1:]
    if any(name.startswith("-") for name in names) or (write and names):
        sys.exit(__doc__)
    found, spilled = [], []
    kernels = names or sorted(path.name for path in KERNELS.glob("*.cu"))
    for kernel in kernels:
        lines, spills = lines_of(kernel)
        found += lines
        spilled += spills
    head = f"nvcc {version()}"
    if write:
        LEDGER.write_text("\n".join([head, *found]) + "\n", encoding="utf8")
    known = LEDGER.read_text(encoding="utf8").splitlines()
    if known[0] != head:
        sys.exit(f"the ledger is of {known[0]}, this is {head}")
    wanted = [line for line in known[1:] if line.split()[1] in kernels]
    differing = [f"- {line}" for line in wanted if line not in found] + [f"+ {line}" for line in found if line not in wanted]
    print("\n".join(differing + [f"stack or spills: {line}" for line in spilled]) or f"{len(found)} kernels as in the ledger")
    sys.exit(1 if differing or spilled else 0)


if __name__ == "__main__":
    main()
