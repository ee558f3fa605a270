#!/usr/bin/env python3
"""Registers, stack and shared memory of every CUDA kernel, as ptxas reports them, and how often its machine code has the instructions
that matter, compared with ledger.txt beside this script.

  ledger.py [--write] [KERNEL.cu ...]

Without names: all kernels, two at a time; four minutes of one processor. Exit status 77 when nvcc is not of the version that the
ledger's first line names, 1 when a line differs, or when any kernel has a stack frame, spills, or loads or stores of local memory,
or for a device on which launches overlap: no wait for the launch before, a load or store of global memory ahead of it (the copies of
constants are LDGSTS), or a load by the path for constants, which need not see what that launch wrote. The tile classes of attention
must have the same bits in exact mode: 1 also when their arithmetic depends on whether the compiler may join a product and a sum.
--write writes the ledger anew instead, all of it. Instructions are counted by cuobjdump, which some toolkits lack: it is looked for
in PATH, beside nvcc and in the Python package nvidia-cuda-cuobjdump. Without it they are not compared, the last line says so, and
--write refuses."""
import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KERNELS = ROOT / "kernels/cuda/ops"
LEDGER = HERE / "ledger.txt"
ARCHITECTURES = ("80", "90")
HOPPER = ("90a",)  # of the files whose name ends in _sm90a.cu

# Tensor cores; matrices out of shared memory; asynchronous copies; stores and loads of local memory.
INSTRUCTIONS = ("HMMA", "LDSM", "LDGSTS", "STL", "LDL")
# Files without a product and a sum that the compiler may join, so that all of their kernels round alike; the arithmetic that shows it.
FIXED_ARITHMETIC = ("attention_tiles.cu",)
ARITHMETIC = ("FFMA", "FMUL", "FADD")
# wgmma; copies by tensor map.
HOPPER_INSTRUCTIONS = ("HGMMA", "UTMALDG")

ENTRY = re.compile(r"Compiling entry function '(?P<name>\w+)' for 'sm_(?P<architecture>\w+)'")
STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
USED = re.compile(r"Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?")
# Of compute capability 9.0: the wait for the launch before, accesses to global memory, loads as of constants.
WAIT = "ACQBULK"
ACCESS = re.compile(r"(LD|LDG|ST|STG|RED|REDG|ATOM|ATOMG)\b")
CONSTANT = re.compile(r"LDG?\.\S*CONSTANT")
SERIALIZED = re.compile(r"wgmma.*serializ", re.IGNORECASE)
CODE = re.compile(r"^\s*code for sm_(\w+)")
FUNCTION = re.compile(r"^\s*Function : (\w+)")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?P<whole>(?P<name>[A-Z][A-Z0-9]*)\S*)")


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)


def version():
    return re.search(r"release ([\d.]+)", output("nvcc", "--version").stdout).group(1)


def find_disassembler():
    """The path of cuobjdump, or None."""
    beside = pathlib.Path(shutil.which("nvcc") or "nvcc").resolve().parent / "cuobjdump"
    packaged = sorted(pathlib.Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/cuobjdump"))
    for candidate in (shutil.which("cuobjdump"), beside, *packaged):
        if candidate and shutil.which(candidate):
            return str(candidate)
    return None


def plain_name(name):
    """Kernel<arguments> without its namespaces and parameters."""
    text = output("c++filt", name).stdout.strip()
    text = re.sub(r"\(anonymous namespace\)::|coppice::kernels::cuda::|\((?:int|coppice::kernels::\w+)\)|^void ", "", text)
    return text.split("(", 1)[0].replace(" ", "")


def count_instructions(disassembler, object_file):
    """Mnemonics, without what follows their first dot, of each architecture and mangled name; "early" counts accesses to global memory
    ahead of the wait for the launch before, "constant" loads as of constants."""
    counts = collections.defaultdict(collections.Counter)
    architecture = name = None
    for line in output(disassembler, "--dump-sass", object_file).stdout.splitlines():
        if match := CODE.match(line):
            architecture = match.group(1)
        elif match := FUNCTION.match(line):
            name = match.group(1)
        elif match := INSTRUCTION.match(line):
            count = counts[architecture, name]
            count["early"] += not count[WAIT] and bool(ACCESS.match(match["whole"]))
            count["constant"] += bool(CONSTANT.match(match["whole"]))
            count[match["name"]] += 1
    return counts


def compiled(kernel, disassembler, *options):
    """What ptxas reports of one .cu file, and the instructions of its kernels; None without a disassembler."""
    with tempfile.TemporaryDirectory() as folder:
        architectures = HOPPER if kernel.endswith("_sm90a.cu") else ARCHITECTURES
        report = output("nvcc", "-std=c++20", "-O3", "-Xptxas=-v", f"-I{ROOT}", *options,
                        *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures),
                        "-c", KERNELS / kernel, "-o", f"{folder}/kernel.o").stderr
        return report, count_instructions(disassembler, f"{folder}/kernel.o") if disassembler else None


def joined_arithmetic(kernel, counts, disassembler):
    """The kernels whose arithmetic is another one where no product is joined with a sum."""
    def arithmetic(of):
        return {(architecture, plain_name(name)): [found[i] for i in ARITHMETIC] for (architecture, name), found in of.items()}
    apart = arithmetic(compiled(kernel, disassembler, "-fmad=false")[1])
    return [f"sm_{architecture} {kernel} {name}: {found} {'/'.join(ARITHMETIC)}, {apart.get((architecture, name))} with -fmad=false"
            for (architecture, name), found in arithmetic(counts).items() if found != apart.get((architecture, name))]


def lines_of(kernel, disassembler):
    """The ledger's lines of one .cu file, and what no kernel may have."""
    lines, bad = [], []
    hopper = kernel.endswith("_sm90a.cu")
    report, counts = compiled(kernel, disassembler)
    if counts is not None and kernel in FIXED_ARITHMETIC:
        bad += joined_arithmetic(kernel, counts, disassembler)
    entry = stack = None
    for line in report.splitlines():
        if match := ENTRY.search(line):
            entry = match
        elif match := STACK.search(line):
            stack = match
        elif SERIALIZED.search(line):
            bad.append(f"{kernel}: {line}")
        elif match := USED.search(line):
            text = (f"sm_{entry['architecture']} {kernel} {plain_name(entry['name'])}: {match['registers']} registers, "
                    f"{match['shared'] or 0} bytes shared")
            if any(int(stack[part]) for part in ("stack", "stores", "loads")):
                bad.append(f"{text}: {stack.group()}")
            if counts is not None:
                found = counts[entry["architecture"], entry["name"]]
                if not found:
                    bad.append(f"{text}: {disassembler} shows no code of it")
                names = INSTRUCTIONS + (HOPPER_INSTRUCTIONS if hopper else ())
                text += "; " + ", ".join(f"{found[instruction]} {instruction}" for instruction in names)
                if found["STL"] or found["LDL"]:
                    bad.append(text)
                if entry["architecture"].startswith("9") and (not found[WAIT] or found["early"] or found["constant"]):
                    bad.append(f"{text}: {found[WAIT]} waits, {found['early']} accesses before, {found['constant']} loads as of constants")
            lines.append(text)
    return sorted(lines), bad


def main():
    names = [name for name in sys.argv[1:] if name != "--write"]
    write = "--write" in sys.argv[1:]
    if any(name.startswith("-") for name in names) or (write and names):
        sys.exit(__doc__)
    disassembler = find_disassembler()
    if write and disassembler is None:
        sys.exit("cuobjdump is not found, without which the ledger would lack its instructions: pip install nvidia-cuda-cuobjdump")
    head = f"nvcc {version()}"
    if not write and (known := LEDGER.read_text(encoding="utf8").splitlines()[0]) != head:
        print(f"the ledger is of {known}, this is {head}: nothing was compared")
        sys.exit(77)
    found, bad = [], []
    kernels = names or sorted(path.name for path in KERNELS.glob("*.cu"))
    if not kernels:
        sys.exit(f"there are no kernels in {KERNELS}")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for lines, bad_lines in pool.map(lambda kernel: lines_of(kernel, disassembler), kernels):
            found += lines
            bad += bad_lines
    if write:
        LEDGER.write_text("\n".join([head, *found]) + "\n", encoding="utf8")
    known = LEDGER.read_text(encoding="utf8").splitlines()
    wanted = [line for line in known[1:] if line.split()[1] in kernels]
    if disassembler is None:
        wanted = [line.split(";", 1)[0] for line in wanted]
    differing = [f"- {line}" for line in wanted if line not in found] + [f"+ {line}" for line in found if line not in wanted]
    print("\n".join(differing + [f"not allowed: {line}" for line in bad]) or f"{len(found)} kernels as in the ledger")
    print(f"instructions counted by {disassembler}" if disassembler else "cuobjdump is not found: instructions were not compared")
    sys.exit(1 if differing or bad else 0)


if __name__ == "__main__":
    main()
