#!/usr/bin/env python3
"""Each rule of tree_rules.py finds the mistake in a tree that breaks it, and accepts a tree that does not."""
import os
import tempfile
import unittest

import tree_rules


class TreeRules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text=""):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf8") as file:
            file.write(text)

    def found(self, check):
        return list(check(self.root))

    def test_accepts_allowed_includes(self):
        self.write("worker/a.cc", '#include "worker/a.h"\n#include "model/b.h"\n#include "absl/status/status.h"\n')
        self.write("kernels/a.h", '#include "comm/communicator.h"\n#include "sampling/row_kernels.h"\n')
        self.write("comm/a.h", '#include "proto/control.pb.h"\n#include "base/types.h"\n')
        self.write("coordinator/api/a.h", '#include "decoding/params.h"\n#include "coordinator/http/http.h"\n')
        self.assertEqual(self.found(tree_rules.check_includes), [])

    def test_catches_forbidden_includes(self):
        cases = {
            "base/a.h": "decoding/params.h", "decoding/a.cc": "model/b.h", "kernels/cpu/a.cc": "comm/channel.h",
            "kernels/a.cc": "decoding/forest.h",
            "comm/a.h": "proto/convert.h", "model/a.h": "decoding/forest.h", "coordinator/a.cc": "model/model_config.h",
            "coordinator/b.cc": "decoding/beam_decoder.h", "loadgen/a.cc": "proto/control.pb.h",
            "worker/a.cc": "coordinator/http/http.h", "draft_node/a.cc": "worker/engine.h", "proto/a.cc": "tests/testing/fake.h",
            "tokenizer/a.cc": "coordinator/api/api.h", "lab/exact/a.h": "tests/testing/fake.h", "lab/experiments/a.cc": "tests/testing/fake.h",
            "lab/bench/a.cc": "tests/testing/fake.h",
        }
        for path, included in cases.items():
            self.write(path, f'#pragma once\n#include "{included}"\n')
        found = self.found(tree_rules.check_includes)
        self.assertEqual(len(found), len(cases), found)
        self.assertIn("base/a.h:2: base/ may not include decoding/params.h", found)

    def test_catches_includes_not_written_from_the_root(self):
        self.write("base/a.cc", '#include "a.h"\n')
        self.assertEqual(len(self.found(tree_rules.check_includes)), 1)

    def test_catches_cuda_headers_outside_of_the_backend(self):
        for path in ("kernels/cuda/a.cc", "kernels/cuda/simulator/fake/a.h", "tests/kernels/cuda/a.cc"):
            self.write(path, "#include <cuda_runtime_api.h>\n#include <cublasLt.h>\n")
        self.assertEqual(self.found(tree_rules.check_cuda_headers), [])
        self.write("kernels/backend.cc", "#include <cuda_runtime_api.h>\n")
        self.write("model/a.h", "\n#include <cublasLt.h>\n")
        self.assertEqual([v.split(": ")[0] for v in self.found(tree_rules.check_cuda_headers)], ["kernels/backend.cc:1", "model/a.h:2"])

    def test_catches_assembly_and_toolkit_headers_in_kernels(self):
        self.write("kernels/cuda/device/device.h", '#include <cuda_bf16.h>\nasm volatile("exit;");\n')
        self.write("kernels/cuda/ops/launch.h", "#include <cuda_runtime_api.h>\n// assembly\n")
        self.write("kernels/cpu/tile.h", 'asm volatile("" : "+r"(pointer));\n')
        self.assertEqual(self.found(tree_rules.check_kernels), [])
        self.write("kernels/cuda/ops/norm.cu", '#include <cuda_bf16.h>\n  asm volatile("exit;");\n')
        self.assertEqual([v.split(": ")[0] for v in self.found(tree_rules.check_kernels)], ["kernels/cuda/ops/norm.cu:1", "kernels/cuda/ops/norm.cu:2"])

    def test_accepts_subfolders_that_include_one_way(self):
        self.write("decoding/forest.h", '#include "decoding/params.h"\n')
        self.write("decoding/factory.cc", '#include "decoding/tree/a.h"\n#include "decoding/factory.h"\n')
        self.write("decoding/factory.h")
        self.write("decoding/sequence/a.h", '#include "decoding/forest.h"\n')
        self.write("decoding/tree/a.h", '#include "decoding/sequence/a.h"\n#include "decoding/tree/b.h"\n#include "decoding/factory.h"\n')
        self.write("decoding/tree/a.cc", '#include "decoding/sequence/b.h"\n')
        self.assertEqual(self.found(tree_rules.check_subfolders), [])

    def test_catches_subfolders_that_include_each_other(self):
        self.write("decoding/sequence/a.h", '#include "decoding/tree/a.h"\n')
        self.write("decoding/tree/b.cc", '#include "decoding/joint/b.h"\n')
        self.write("decoding/joint/b.cc", '\n#include "decoding/sequence/a.h"\n')
        self.assertEqual(self.found(tree_rules.check_subfolders), [
            "decoding/tree/b.cc:1: includes in a circle: decoding/joint/ -> decoding/sequence/ -> decoding/tree/ -> decoding/joint/"])

    def test_catches_a_subfolder_and_a_header_that_include_each_other(self):
        self.write("coordinator/routes.h", '#include "coordinator/http/a.h"\n')
        self.write("coordinator/http/a.cc", '#include "coordinator/routes.h"\n')
        self.assertEqual(len(self.found(tree_rules.check_subfolders)), 1)

    def test_accepts_types_that_differ_in_their_qualified_names(self):
        self.write("model/a.h", "namespace coppice::model {\nstruct Sequence {\n  struct Entry {};\n  enum class Kind { kA };\n};\n"
                                "class Later;\nstruct Forward;\ntemplate <class T, typename U>\nclass Box : public A::B<T> {};\n}\n")
        self.write("worker/a.h", "namespace coppice::worker {\nstruct Sequence final {};\nclass Forward {};\n"
                                 "inline void F() { struct Box {}; }\nint Sequence::* member{0};\n}\n")
        self.write("worker/a.cc", "namespace coppice::worker {\nnamespace {\nstruct Entry {};\n}\nvoid G() { struct Entry {}; }\n}\n")
        self.write("worker/b.cc", "namespace coppice::worker {\nnamespace {\nstruct Entry {};\n}\n"
                                  "// struct Sequence {\nconst char* text = \"struct Sequence {\";\n}\n")
        self.write("proto/a.proto", "package coppice.proto;\nmessage Sequence {\n}\n")
        self.write("tests/worker/a.cc", "namespace coppice::worker {\nstruct Sequence {};\n}\n")  # a program of its own
        self.assertEqual(self.found(tree_rules.check_types), [])

    def test_catches_two_types_of_one_qualified_name(self):
        cases = {
            "model/b.h": "namespace coppice {\nstruct Sequence {\n};\n}\n",
            "worker/b.cc": "namespace coppice {\nvoid F() {}\n\nclass Sequence final : public model::Base<int> {\n};\n}\n",
            "model/c.h": "namespace coppice::model {\nclass Blocks {\n  struct Impl;\n  enum class Kind : uint8_t { kA };\n};\n}\n",
            "model/c.cc": "namespace coppice::model {\nstruct Blocks::Impl {};\n}\n",
            "model/d.cc": "namespace coppice {\nnamespace model {\nenum Blocks::Kind { kB };\nstruct [[nodiscard]] Blocks::Impl {};\n}\n}\n",
            "proto/a.proto": "package coppice.proto;\nmessage Plan {\n}\n",
            "proto/b.h": "#define BEGIN {\nnamespace coppice::proto {\nusing A = int;\nstruct Plan {};\n}\n",
        }
        for path, text in cases.items():
            self.write(path, text)
        found = self.found(tree_rules.check_types)
        self.assertEqual(len(found), 4, found)
        for violation in ("worker/b.cc:4: coppice::Sequence is the name of another type, of model/b.h:2",
                          "model/d.cc:3: coppice::model::Blocks::Kind is the name of another type, of model/c.h:4",
                          "model/d.cc:4: coppice::model::Blocks::Impl is the name of another type, of model/c.cc:2",
                          "proto/b.h:4: coppice::proto::Plan is the name of another type, of proto/a.proto:2"):
            self.assertIn(violation, found)

    def test_catches_missing_readme(self):
        self.write("base/a.h")
        self.write("model/README.md")
        self.assertEqual(self.found(tree_rules.check_readmes), ["base/: no README.md"])

    def test_catches_unlisted_source(self):
        self.write("base/CMakeLists.txt", "coppice_library(coppice_base SOURCES rng.cc extra/clock.cc)")
        for name in ("rng.cc", "g.cc", "extra/clock.cc", "extra/other.cc"):
            self.write("base/" + name)
        self.assertEqual([v.split(":")[0] for v in self.found(tree_rules.check_listed)],
                         ["base/g.cc", "base/extra/other.cc"])

    def test_accepts_sources_listed_by_pattern(self):
        self.write("tests/base/CMakeLists.txt", "foreach(t rng clock)\n coppice_test(${t} SOURCES ${t}_test.cc)\nendforeach()")
        for name in ("rng_test.cc", "clock_test.cc", "log_test.cc"):
            self.write("tests/base/" + name)
        self.assertEqual([v.split(":")[0] for v in self.found(tree_rules.check_listed)], ["tests/base/log_test.cc"])

    def test_catches_names_that_say_nothing(self):
        for name in ("string_utils.h", "helpers/a.cc", "common.cc", "misc.py", "utility_function.h", "commons_test.cc"):
            self.write("base/" + name)
        self.assertEqual(len(self.found(tree_rules.check_names)), 5)

    def test_catches_scripts_that_do_not_parse(self):
        self.write("deploy/good.sh", "#!/bin/bash\necho ok\n")
        self.write("deploy/bad.sh", "#!/bin/bash\nif true; then\n")
        self.write("training/bad.py", "def f(:\n")
        self.write(".ci/run", "#!/usr/bin/env bash\ncase x in\n")
        self.assertEqual({v.split(":")[0] for v in self.found(tree_rules.check_scripts)},
                         {"deploy/bad.sh", "training/bad.py", ".ci/run"})

    def test_accepts_citations_of_pages_and_sections(self):
        self.write("docs/distributions.md", "# Distributions\n\n## 2. Noise\n\n### 2.1 Keys\n\n## 10. Figures\n")
        self.write("base/a.h", "// Noise (docs/distributions.md 2, 2.1): as docs/distributions.md\n// 10 and 2.1-10 say, and docs/distributions.md too. 7 draws.\n")
        self.write("docs/README.md", "[distributions](distributions.md) 2.1, [root](../README.md), docs/distributions.md 10.\n")
        self.write("README.md", "[distributions](docs/distributions.md)\n")
        self.assertEqual(self.found(tree_rules.check_citations), [])

    def test_catches_citations_of_what_is_not_there(self):
        self.write("docs/distributions.md", "# Distributions\n\n## 2. Noise\n\n### 2.1 Keys\n")
        self.write("base/a.h", "// Noise\n// (docs/distributions.md 2, 2.2)\n// docs/distribution.md\n// docs/distributions.md\n// 3 says\n// DISTRIBUTIONS.md 2\n")
        self.write("worker/plan.proto", "// docs/distributions.md 2.1-2.4\n")
        self.write("README.md", "[distributions](docs/distributions.md) 5 and [more](docs/more.md)\n")
        self.assertEqual(self.found(tree_rules.check_citations), [
            "base/a.h:2: docs/distributions.md has no section 2.2", "base/a.h:3: there is no docs/distribution.md",
            "base/a.h:4: docs/distributions.md has no section 3", "base/a.h:6: DISTRIBUTIONS.md is not a file of this tree",
            "worker/plan.proto:1: docs/distributions.md has no section 2.4",
            "README.md:1: docs/distributions.md has no section 5", "README.md:1: there is no docs/more.md"])

    def test_catches_tests_that_skip(self):
        self.write("tests/base/a_test.cc", '  if (!file) GTEST_SKIP() << "no file";\n')
        self.write("tests/base/CMakeLists.txt", "set_tests_properties(a PROPERTIES SKIP_RETURN_CODE 77)\n")
        self.write("tests/cluster/b_test.py", "@unittest.skipUnless(x, 'y')\ndef test():\n    skipped = 1\n")
        self.assertEqual([v.split(": ")[0] for v in self.found(tree_rules.check_skips)],
                         ["tests/base/CMakeLists.txt:1", "tests/base/a_test.cc:1", "tests/cluster/b_test.py:1"])

    def test_catches_merges_that_were_not_decided(self):
        self.write("docs/hosts.md", "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n")
        self.write("README.md", "Title\n=======\n")
        self.assertEqual([v.split(": ")[0] for v in self.found(tree_rules.check_merges)], ["docs/hosts.md:2", "docs/hosts.md:6"])

    def test_accepts_large_files_that_a_page_names(self):
        for path in ("deploy/demo/pair/model.safetensors", "tests/models/a.json", "tests/models/small.json", "docs/plot.svg"):
            self.write(path, "x" * (1000 if "small" in path else 100_001))
        self.write("deploy/README.md", "`demo/pair/model.safetensors`: the weights.\n")
        self.write("tests/models/README.md", "| `a.json` |\n")
        self.write("docs/page.md", "docs/plot.svg.\n")
        self.assertEqual(self.found(tree_rules.check_large_files), [])

    def test_catches_large_files_that_no_page_names(self):
        self.write("deploy/demo/model.safetensors", "x" * 100_001)
        self.write("deploy/data.json", "x" * 100_001)
        self.write("a.bin", "x" * 100_001)
        self.write("deploy/demo/README.md", "model.safetensors.old, `data.json`, big-model.safetensors\n")
        self.assertEqual([v.split(": ")[0] for v in self.found(tree_rules.check_large_files)],
                         ["a.bin", "deploy/data.json", "deploy/demo/model.safetensors"])


if __name__ == "__main__":
    unittest.main()
