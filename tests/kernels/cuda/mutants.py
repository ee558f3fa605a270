#!/usr/bin/env python3
"""Plants one mistake after another in the CUDA kernels and in what launches them, and shows that the tests in simulation find each.

  mutants.py BUILD_DIR [WORD | --kinds]
  mutants.py --check             # only that each of them can be planted
  mutants.py --list              # each with the program that must find it

BUILD_DIR: a build of the preset cuda-sim that has cuda_kernels_test, cuda_backend_test, cuda_device_test and cuda_exact_test.
WORD: only the mutants whose name has it. --kinds: one of each kind (KINDS of mutant_list.py). A mutant (mutant_list.py) replaces one text, which must occur exactly once; only what
includes the file is compiled again, plainly or with the thread sanitizer, and is linked in front of the kernels of the build.
Nothing in the tree is written. Exit status 1 when a mutant survives."""
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

from mutant import UNITS
from mutant_list import KINDS, MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[3]
KERNELS = ROOT / "kernels/cuda"


def run(command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def mutated(mutant):
    """The text of its file with the mistake."""
    text = (KERNELS / mutant.file).read_text(encoding="utf8")
    if text.count(mutant.old) != 1:
        sys.exit(f"{mutant.name}: {mutant.old!r} occurs {text.count(mutant.old)} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def plant(mutant, folder):
    """Writes the mutated file below folder, by its path in the tree."""
    place = folder / "kernels/cuda" / mutant.file
    place.parent.mkdir(parents=True)
    place.write_text(mutated(mutant), encoding="utf8")


def cuda_include(build):
    for line in (build / "CMakeCache.txt").read_text(encoding="utf8").splitlines():
        if line.startswith("COPPICE_CUDA_INCLUDE:"):
            return line.split("=", 1)[1]
    sys.exit(f"{build} was configured without the headers of the CUDA toolkit")


def link_kernels(build, sanitize, objects, program):
    tests = sorted((build / "tests/kernels/cuda/CMakeFiles/cuda_kernels_test.dir").rglob("*.o"))
    libraries = [build / "tests/kernels/cuda/libcoppice_cuda_probe_sim.a",
                 build / "kernels/cuda/simulator/libcoppice_cuda_kernels_sim.a", build / "kernels/cuda/simulator/libcoppice_simt.a",
                 build / "kernels/cuda/libcoppice_cuda_plan.a", build / "base/libcoppice_base.a"]
    return run(["g++", "-pthread", *sanitize, *objects, *tests, *libraries, "-lgmock", "-lgtest", "-lgtest_main", "-o", program])


def link_as_built(build, name, objects, program):
    """By the command of the build, with these objects before all others."""
    command = run(["ninja", "-C", build, "-t", "commands", "-s", f"bin/{name}"]).stdout.strip().splitlines()[-1]
    parts = [part for part in shlex.split(command) if part not in (":", "&&")]
    parts[parts.index("-o") + 1] = str(program)
    first = next(i for i, part in enumerate(parts) if part.endswith(".o"))
    return run([*parts[:first], *objects, *parts[first:]], cwd=build)


def survives(mutant, build):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plant(mutant, folder)
        sanitize = ["-fsanitize=thread", "-g1"] if mutant.thread_sanitizer else []
        objects = []
        for unit in mutant.units or UNITS.get(mutant.file, (mutant.file,)):
            source = folder / "kernels/cuda" / unit
            if not source.exists():
                source = KERNELS / unit
            objects.append(folder / f"{unit}.o")
            language = ["-x", "c++"] if unit.endswith(".cu") else []
            compiled = run(["g++", "-std=c++20", "-O1", "-fPIC", *sanitize, f"-I{folder}", f"-I{ROOT}", "-isystem",
                            cuda_include(build), *language, "-c", source, "-o", objects[-1]])
            if compiled.returncode != 0:
                sys.exit(f"{mutant.name} does not compile:\n{compiled.stderr}")
        program = folder / "test"
        if mutant.program == "cuda_kernels_test":
            linked = link_kernels(build, sanitize, objects, program)
        else:
            linked = link_as_built(build, mutant.program, objects, program)
        if linked.returncode != 0:
            sys.exit(f"{mutant.name} does not link:\n{linked.stderr}")
        environment = {**os.environ, "DEV_ORDER": "random", "DEV_SEED": "7", "TSAN_OPTIONS": "halt_on_error=1 symbolize=0 exitcode=66"}
        if mutant.overlap:
            environment["DEV_OVERLAP"] = "1"
        try:
            return run([program, f"--gtest_filter={mutant.tests}"], cwd=ROOT, env=environment, timeout=600).returncode == 0
        except subprocess.TimeoutExpired:
            return False  # a kernel that never ends


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    kind_of = {name: kind for kind, name in KINDS.items()}
    if unknown := set(kind_of) - {m.name for m in MUTANTS}:
        sys.exit(f"no such mutants: {sorted(unknown)}")
    if sys.argv[1] == "--check":
        print(f"{len([mutated(mutant) for mutant in MUTANTS])} mutants can be planted, of {len(KINDS)} kinds one each is named")
        return
    if sys.argv[1] == "--list":
        for m in MUTANTS:
            how = ", thread sanitizer" if m.thread_sanitizer else ", launches overlap" if m.overlap else ""
            print(f"{m.name} [{m.program}{how}]" + (f" = {kind_of[m.name]}" if m.name in kind_of else ""))
        return
    build = pathlib.Path(sys.argv[1]).resolve()
    wanted = sys.argv[2] if len(sys.argv) == 3 else ""
    chosen = [m for m in MUTANTS if (m.name in kind_of if wanted == "--kinds" else wanted in m.name)]
    survivors = 0
    for mutant in chosen:
        survived = survives(mutant, build)
        survivors += survived
        print(f"{'SURVIVES' if survived else 'found'}: {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants are found")
    sys.exit(1 if survivors or not chosen else 0)


if __name__ == "__main__":
    main()
