#!/usr/bin/env python3
"""Writes tokenizer/nfc_tables.inc (canonical decompositions and combining classes) from Python's unicodedata.

  tests/tokenizer/make_nfc_tables.py > tokenizer/nfc_tables.inc
"""
import sys
import unicodedata


def decompositions():
    for code in range(sys.maxunicode + 1):
        mapping = unicodedata.decomposition(chr(code))
        if not mapping or mapping.startswith("<"):
            continue
        parts = [int(part, 16) for part in mapping.split()]
        composes = len(parts) == 2 and unicodedata.normalize("NFC", chr(code)) == chr(code)
        yield code, parts[0], parts[1] if len(parts) == 2 else 0, composes


def combining_classes():
    begin, value = 0, 0
    for code in range(sys.maxunicode + 2):
        here = unicodedata.combining(chr(code)) if code <= sys.maxunicode else 0
        if here != value:
            if value:
                yield begin, code, value
            begin, value = code, here


def write(name, kind, rows, per_line):
    print(f"constexpr {kind} {name}[] = {{")
    for i in range(0, len(rows), per_line):
        print("    " + " ".join(rows[i:i + per_line]))
    print("};")


def main():
    print(f"// Made by tests/tokenizer/make_nfc_tables.py from Unicode {unicodedata.unidata_version}. Do not edit.")
    write("kDecompositions", "Decomposition",
          ["{0x%X, 0x%X, 0x%X, %d}," % row for row in decompositions()], 4)
    write("kCombiningClasses", "CombiningClass",
          ["{0x%X, 0x%X, %d}," % row for row in combining_classes()], 5)


if __name__ == "__main__":
    main()
