#!/usr/bin/env python3
"""Which draft a cluster gets: what --draft auto finds beside a target and in the catalogue, what it skips and why, and where drafts of
each kind run. Reads command lines of --dry-run; the checks of the program are those of a stand-in. Starts nothing."""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

from cluster import ROOT, run_launcher
from stopwatch import at_most

sys.path.insert(1, str(ROOT / "deploy/launch"))
from draft_choice import find, kind_of  # noqa: E402
from draft_files import DFLASH, EAGLE3, MODEL, misfit, read_model_files  # noqa: E402

TARGET = dict(architectures=["Qwen3ForCausalLM"], hidden_size=64, vocab_size=512, num_hidden_layers=8)
MODEL_CONFIG = dict(TARGET, hidden_size=32, num_hidden_layers=2)
HEAD = dict(architectures=["LlamaForCausalLMEagle3"], hidden_size=64, vocab_size=512, draft_vocab_size=128, num_hidden_layers=1)
BLOCKS = dict(architectures=["DFlashDraftModel"], hidden_size=64, vocab_size=512, num_hidden_layers=5, block_size=16,
              dflash_config=dict(mask_token_id=511, target_layer_ids=[1, 3, 5, 6]))
SUFFIXES = "drafts are taken from what repeats in prompt and answer"
# Stands for coppice-worker: refuses a draft with a file `broken`, as --check does.
WORKER = """#!/bin/bash
for word; do case $word in --check_draft=*) draft=${word#*=} ;; esac; done
[ ! -e "$draft/broken" ] || { echo "coppice-worker: $draft: token 7 has another text" >&2; exit 1; }
"""


def write_model(path, config, shapes=None, size=0):
    """A folder with a config.json and the header of a safetensors file; size: of the tensors' data, in bytes."""
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    tensors = {name: dict(dtype="BF16", shape=shape, data_offsets=[0, 0]) for name, shape in (shapes or {"norm.weight": [4]}).items()}
    header = json.dumps(dict(tensors, __metadata__={})).encode()
    with open(path / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return str(path)


def no_check(target, draft):
    return None


class DraftChoice(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.models = self.folder / "models"
        self.target = write_model(self.models / "qwen", TARGET, size=1 << 20)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        worker = self.bin / "coppice-worker"
        worker.write_text(WORKER)
        worker.chmod(0o755)
        self.catalogue = self.folder / "catalogue.toml"
        self.catalogue.write_text("")
        self.environment = dict(os.environ, XDG_DATA_HOME=str(self.folder / "data"), COPPICE_MODEL_CATALOGUE=str(self.catalogue))

    def head(self, name, config=None, columns=192, **fields):
        return write_model(self.models / name, dict(config or HEAD, **fields), {"fc.weight": [64, columns], "norm.weight": [64]})

    def dry(self, *arguments):
        """(exit status, lines of the processes, lines about the draft, errors)"""
        status, output, errors = run_launcher([ROOT / "deploy/cluster.sh", "up", "--dry-run", "--bin", self.bin, "--state", self.folder / "state",
                                               *arguments], timeout=at_most(20), environment=self.environment)[1:]
        lines = output.splitlines()
        return (status, [line for line in lines if not line.startswith("#")],
                [line.removeprefix("# ") for line in lines if line.startswith("# draft: ")], errors)

    def up(self, *arguments):
        status, processes, said, errors = self.dry("--target", self.target, *arguments)
        self.assertEqual((status, errors), (0, ""))
        return processes, said

    def check_on_nodes(self, processes, draft, count=1, head=False):
        nodes = [line for line in processes if "coppice-draft " in line]
        self.assertEqual([re.findall(r" --model=(\S+)", line) for line in nodes], [[draft]] * count)
        self.assertEqual([f" --target={self.target} " in line for line in nodes], [head] * count)
        worker, = (line for line in processes if "coppice-worker " in line)
        self.assertNotIn(" --draft=", worker)
        self.assertEqual(re.findall(r" --states_for=(\S+)", worker), [draft] if head else [])

    def check_in_worker(self, processes, draft):
        self.assertEqual(len(processes), 2, processes)
        self.assertEqual(re.findall(r" --draft=(\S+)", processes[1]), [draft])
        self.assertNotIn("--states_for", processes[1])

    def test_nothing_beside_the_target(self):
        write_model(self.models / "other-draft", dict(MODEL_CONFIG, vocab_size=600))  # of another target
        write_model(self.models / "as-large", TARGET, size=1 << 20)
        write_model(self.models / "quarter", TARGET, size=1 << 18)  # and its header
        (self.models / "notes").mkdir()
        self.assertEqual(self.up()[1], [f"draft: none fits in {self.models}; {SUFFIXES}"])
        self.assertEqual(len(self.up("--draft", "auto")[0]), 2)
        self.assertEqual(self.up("--draft", "none"), (self.up()[0], []))
        self.assertEqual(self.up("--drafts", "0")[1], [])

    def test_names_say_whose_draft_it_is(self):
        for name in ("qwen-draft", "qwen_DRAFT-v2", "draft"):
            with self.subTest(name):
                path = write_model(self.models / name, MODEL_CONFIG, size=1 << 20)
                processes, said = self.up()
                self.check_on_nodes(processes, path)
                self.assertEqual(said, [f"draft: {path}, a draft model (beside the target, by its name)"])
                (self.models / name).rename(self.folder / name)
        path = self.head("Qwen_eagle3")
        self.check_in_worker(self.up()[0], path)
        draft = write_model(self.models / "qwen-draft", MODEL_CONFIG)
        self.check_on_nodes(self.up()[0], draft)  # before a head
        target = write_model(self.folder / "pair/a-target", TARGET)
        draft = write_model(self.folder / "pair/a-draft", MODEL_CONFIG)
        self.assertEqual(find(target, no_check).path, draft)
        self.assertEqual(find(os.path.relpath(target), no_check).path, draft)

    def test_a_draft_that_does_not_fit_is_skipped(self):
        broken = write_model(self.models / "qwen-draft", MODEL_CONFIG)
        pathlib.Path(broken, "broken").touch()
        wrong = self.head("qwen-eagle3", columns=96)
        self.head("qwen-eagle3-old", vocab_size=500)
        right = self.head("qwen-eagle3.v2")
        processes, said = self.up()
        self.check_in_worker(processes, right)
        self.assertEqual(said, [
            f"draft: {broken} does not fit and is not used: {broken}: token 7 has another text",
            f"draft: {wrong} does not fit and is not used: it joins states of 96 values, and those of the target have 64 a layer",
            f"draft: {self.models}/qwen-eagle3-old does not fit and is not used: its vocabulary has 500 ids, the target's 512",
            f"draft: {right}, an EAGLE-3 head (beside the target, by its name)"])
        # One that was named is not judged here: the worker refuses it before anything starts.
        self.check_on_nodes(self.up("--draft", broken)[0], broken)

    def test_sizes_say_whose_head_it_is(self):
        large = write_model(self.models / "b-small", TARGET, size=1 << 17)
        small = write_model(self.models / "a-smaller", MODEL_CONFIG, size=1 << 10)
        processes, said = self.up()
        self.check_on_nodes(processes, small)
        self.assertEqual(said, [f"draft: {small}, a draft model (beside the target, smaller, with its vocabulary)"])
        pathlib.Path(small, "broken").touch()
        self.check_on_nodes(self.up()[0], large)
        self.head("unrelated", hidden_size=48, columns=144)
        blocks = self.head("z-blocks", BLOCKS, columns=256)
        processes, said = self.up()
        self.check_in_worker(processes, blocks)
        self.assertEqual(said[-1], f"draft: {blocks}, a DFlash drafter (beside the target, by its sizes)")
        with open(os.path.join(blocks, "config.json"), "w", encoding="utf8") as file:
            json.dump(dict(BLOCKS, dflash_config=dict(BLOCKS["dflash_config"], target_layer_ids=[1, 3, 5, 9])), file)
        self.check_on_nodes(self.up()[0], large)  # the target has no layer 9

    def test_kinds(self):
        for config, kind in ((HEAD, EAGLE3), (dict(HEAD, architectures=["LlamaForCausalLM"]), EAGLE3), (BLOCKS, DFLASH),
                             (dict(architectures=["Eagle3Speculator"], speculators_model_type="eagle3", draft_vocab_size=128,
                                   transformer_layer_config=dict(hidden_size=64, vocab_size=512)), EAGLE3), (MODEL_CONFIG, MODEL)):
            path = self.head(f"kind-{len(list(self.models.iterdir()))}", config, columns=256 if config is BLOCKS else 192)
            files = read_model_files(path)
            self.assertEqual((kind_of(path), files.vocab), (kind, 512), config)
            self.assertIsNone(misfit(files, read_model_files(self.target)))
        for inner in ({}, dict(eagle_config=dict(eagle_aux_hidden_state_layer_ids=[1, 2]))):
            path = self.head(f"two-{len(inner)}", dict(HEAD, **inner), **({} if inner else dict(eagle_aux_hidden_state_layer_ids=[1, 2])))
            self.assertIn("it joins states of 192 values", misfit(read_model_files(path), read_model_files(self.target)))  # not of two layers
        # As the authors publish: no name of its own, and a file of torch.save.
        path = self.models / "authors"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(dict(HEAD, architectures=["LlamaForCausalLM"])))
        for tensor, kind in (("fc.weight", EAGLE3), ("norm.weight", MODEL)):
            with zipfile.ZipFile(path / "pytorch_model.bin", "w") as archive:
                archive.writestr("archive/data.pkl", b"\x80\x02}X" + tensor.encode())
            self.assertEqual(kind_of(path), kind)
        (path / "pytorch_model.bin").write_bytes(b"PK\x03\x04 no archive")
        self.assertEqual(kind_of(path), MODEL)
        # Fewer rows in its head alone make no head on hidden states.
        self.assertEqual(kind_of(write_model(self.models / "reduced", dict(MODEL_CONFIG, draft_vocab_size=128))), MODEL)
        self.assertEqual(kind_of("/models/on-other-hosts"), MODEL)

    def test_files_that_cannot_be_read(self):
        for content in ("", "[1]", "{", "[" * 100000, "{\"vocab_size\": \"512\"}", "\x00"):
            path = self.models / "qwen-draft/config.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            (path.parent / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{")
            (path.parent / "broken").touch()
            self.assertRegex("\n".join(self.up()[1]), f"draft: none fits in {self.models}; ")
        (path.parent / "config.json").write_text(json.dumps(HEAD))
        self.assertEqual(kind_of(path.parent), EAGLE3)
        self.catalogue.write_text("[m]\nwhat = 1\n")
        self.assertRegex(self.up()[1][0], r"^draft: the catalogue of models is left out: \S+catalogue.toml: m: what: expected a text$")

    def test_drafts_of_the_catalogue(self):
        data = self.folder / "data/coppice/models"
        data.mkdir(parents=True)
        draft = write_model(self.folder / "kept/draft", MODEL_CONFIG)
        self.catalogue.write_text(f'[tiny]\nwhat = "a"\nversion = "1"\nmb = 1\npackage = "p"\nsha256 = "0"\nfile = "f"\ndraft = "{draft}"\n')
        fetched = data / "tiny-1.gguf"
        fetched.write_bytes(b"GGUF and more")
        elsewhere = self.folder / "elsewhere/tiny-1.gguf"
        elsewhere.parent.mkdir()
        elsewhere.write_bytes(fetched.read_bytes())
        for target in (fetched, elsewhere):
            status, processes, said, errors = self.dry("--target", target)
            self.assertEqual((status, errors, said), (0, "", [f"draft: {draft}, a draft model (fetched for the target)"]))
            self.assertIn(f" --model={draft} ", processes[-1])
        elsewhere.write_bytes(b"GGUF")
        self.assertEqual(self.dry("--target", elsewhere)[2], [f"draft: none fits in {elsewhere.parent}; {SUFFIXES}"])
        fetched.unlink()
        self.assertEqual(len(self.dry("--target", self.target)[1]), 2)

    def test_where_heads_run(self):
        head = self.head("h")
        self.check_in_worker(self.up("--draft", head)[0], head)
        self.check_on_nodes(self.up("--draft", head, "--drafts", "2")[0], head, count=2, head=True)
        self.check_on_nodes(self.up("--draft", head, "--draft-in", "nodes")[0], head, head=True)
        self.check_on_nodes(self.up("--drafts", "1")[0], head, head=True)
        self.assertEqual(self.up("--draft", head)[1], [f"draft: {head}, an EAGLE-3 head"])
        model = write_model(self.models / "m", MODEL_CONFIG)
        self.check_on_nodes(self.up("--draft", model)[0], model)
        self.check_in_worker(self.up("--draft", model, "--draft-in", "worker")[0], model)
        gpus = ("--backend", "cuda", "--gpus", "0,1")
        processes = self.up("--draft", head, *gpus)[0]
        self.check_in_worker(processes, head)
        self.assertIn("CUDA_VISIBLE_DEVICES=0 ", processes[1])
        self.check_on_nodes(self.up("--draft", head, *gpus, "--drafts", "1")[0], head, head=True)
        self.check_in_worker(self.up("--draft", head, "--backend", "cuda", "--gpus", "0", "--drafts", "1")[0], head)  # no GPU is left
        away = "/models/on-other-hosts"
        self.check_on_nodes(self.up("--draft", away)[0], away)
        self.check_in_worker(self.up("--draft", away, "--draft-kind", "head")[0], away)
        status, _, _, errors = self.dry("--target", self.target, "--draft", head, "--draft-in", "worker", "--drafts", "2")
        self.assertEqual((status, errors), (1, "cluster: --draft-in: the draft is in the workers, but drafts is 2\n"))
        status, _, _, errors = self.dry("--target", self.target, "--draft", head, "--draft-kind", "model")
        self.assertEqual((status, errors), (2, f"cluster: --draft-kind model: {head} is an EAGLE-3 head, which is served as a head (see --help)\n"))
        status, _, _, errors = self.dry("--target", self.target, "--draft-in", "here")
        self.assertEqual((status, errors), (2, "cluster: --draft-in must be auto, worker or nodes, got 'here' (see --help)\n"))

    def test_a_draft_that_was_found_needs_no_slot(self):
        model = write_model(self.models / "qwen-draft", MODEL_CONFIG)
        hosts = self.folder / "hosts"
        hosts.write_text("localhost slots=1 cores=2 address=10.0.0.1\n")
        at = ("up", "--dry-run", "--hostfile", hosts, "--target", self.target, "--bin", self.bin)
        for more in ((), ("--draft", "auto")):
            status, output, errors = run_launcher([ROOT / "deploy/cluster.sh", *at, *more], timeout=at_most(20), environment=self.environment)[1:]
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("# no slot is free for a draft node: each replica grows drafts in its leader's process\n", output)
            self.check_in_worker([line for line in output.splitlines() if not line.startswith("#")], model)
        errors = run_launcher([ROOT / "deploy/cluster.sh", *at, "--draft", model], timeout=at_most(20), environment=self.environment)[3]
        self.assertEqual(errors, "cluster: --drafts: draft-0 needs a slot; free are: 0 of localhost\n")

    def test_cluster_files(self):
        head = self.head("qwen-eagle3")
        file = self.folder / "cluster.toml"
        text = f'target = "{self.target}"\nbin = "{self.bin}"\n'
        hosts = '[[host]]\nname = "localhost"\naddress = "10.0.0.1"\ncores = 4\n[[host]]\nname = "b"\naddress = "10.0.0.2"\ncores = 4\n'

        def lines(more):
            file.write_text(text + more)
            status, output, errors = run_launcher([ROOT / "deploy/cluster.sh", "up", "--dry-run", "--cluster", file, "--state", self.folder / "state"],
                                                  timeout=at_most(20), environment=self.environment)[1:]
            return status, [line for line in output.splitlines() if not line.startswith("#")], errors

        for more in ("", 'draft = "auto"\n', 'draft = "auto"\n' + hosts):
            self.check_in_worker(lines(more)[1], head)
        self.assertNotIn(head, "".join(lines(hosts)[1]))  # other hosts may lack it
        self.assertNotIn(head, "".join(lines('draft = "none"\n')[1]))
        self.check_on_nodes(lines('draft = "auto"\n' + hosts + '[[draft_node]]\non = ["b"]\n')[1], head, head=True)
        self.check_on_nodes(lines(f'draft = "{head}"\n[flags]\ndraft = ["--max_sessions=8"]\n')[1], head, head=True)
        for more, said in (('[[draft_node]]\non = ["b"]\n', "draft_node: a draft node needs `draft`, the folder of its model"),
                           ('draft = "auto"\ndraft_in = "worker"\n' + hosts + '[[draft_node]]\non = ["b"]\n',
                            "draft_in: the draft is in the workers, but there are 1 [[draft_node]] tables"),
                           ('draft = "auto"\ndrafts = 2\n' + hosts + '[[draft_node]]\non = ["b"]\n',
                            "drafts: is 2, but there are 1 [[draft_node]] tables"),
                           ('draft_kind = "eagle3"\n', "draft_kind: must be auto, model or head, got 'eagle3'"),
                           ('draft = "automatic"\n', "draft: must begin with /, since every host reads it, got 'automatic'")):
            status, _, errors = lines(more if hosts in more or "[[" not in more else hosts + more)
            self.assertEqual(status, 1)
            self.assertRegex(errors, re.escape(str(file)) + r":\d+: " + re.escape(said))
        pathlib.Path(head).rename(self.folder / "gone")
        _, _, errors = lines('draft = "auto"\n' + hosts + '[[draft_node]]\non = ["b"]\n')
        self.assertIn(f"draft_node: a draft node needs a draft; draft: none fits in {self.models}; {SUFFIXES}", errors)

    def test_no_suffix_drafts_are_promised_where_they_are_off(self):
        file = self.folder / "cluster.toml"
        file.write_text(f'target = "{self.target}"\n[flags]\nworker = ["--suffix_drafts=false"]\n')
        output = run_launcher([ROOT / "deploy/cluster.sh", "up", "--dry-run", "--cluster", file], timeout=at_most(20),
                              environment=self.environment)[2]
        self.assertIn(f"# draft: none fits in {self.models}; there are no drafts\n", output)

    def slurm(self, *options):
        result = subprocess.run([ROOT / "deploy/slurm/cluster.sh", "--bin", self.bin, "--dry-run", "--target", self.target, *options],
                                capture_output=True, text=True, env=self.environment, timeout=at_most(60))
        steps = [line for line in result.stdout.splitlines() if "--job-name=key" not in line]
        return result.returncode, steps, result.stderr

    def test_slurm(self):
        head = self.head("qwen-eagle3")
        for options in (("--draft", head), ("--draft", "auto")):
            status, steps, errors = self.slurm(*options)
            self.assertEqual((status, len(steps)), (0, 2), errors)
            self.check_in_worker(steps, head)
            self.assertIn(f"draft: {head}, an EAGLE-3 head", errors)
        self.check_on_nodes(self.slurm("--draft", head, "--drafts", "2")[1], head, count=2, head=True)
        for options in ((), ("--draft", "none"), ("--draft", head, "--drafts", "0")):
            self.assertNotIn(head, "".join(self.slurm(*options)[1]))
        model = write_model(self.models / "m", MODEL_CONFIG)
        self.check_on_nodes(self.slurm("--draft", model)[1], model)
        self.check_in_worker(self.slurm("--draft", model, "--draft-in", "worker")[1], model)
        for options, said in ((("--draft-in", "here"), "--draft-in must be auto, worker or nodes, got 'here'"),
                              (("--draft-in", "worker", "--drafts", "1"), "--draft-in: the draft is in the workers, but --drafts is 1")):
            self.assertEqual(self.slurm(*options)[::2], (2, f"slurm/cluster.sh: {said} (see --help)\n"))

    def kubernetes(self, *options):
        """{component: command} of the programs."""
        result = subprocess.run([ROOT / "deploy/kubernetes/manifests.py", "--image", "i", "--target", "/models/t", *options],
                                capture_output=True, text=True, timeout=at_most(60))
        if result.returncode != 0:
            return result.stderr
        commands = re.findall(r'"command": \[([^\]]*coppice-(?:draft|worker)[^\]]*)\]', result.stdout)
        return {re.search(r"coppice-(draft|worker)\"", command)[1]: json.loads(f"[{command}]") for command in commands}

    def test_kubernetes(self):
        head = ("--draft", "/models/h", "--draft-kind", "head")
        for options in (head, ("--draft", "/models/h", "--draft-in", "worker")):
            commands = self.kubernetes(*options)
            self.assertEqual(set(commands), {"worker"})
            self.assertIn("--draft=/models/h", commands["worker"])
        commands = self.kubernetes(*head, "--drafts", "2")
        self.assertIn("--states_for=/models/h", commands["worker"])
        self.assertIn("--target=/models/t", commands["draft"])
        self.assertIn("--model=/models/h", commands["draft"])
        commands = self.kubernetes("--draft", "/models/d")
        self.assertIn("--model=/models/d", commands["draft"])
        self.assertNotRegex(" ".join(sum(commands.values(), [])), "--target|--states_for|--draft=")
        for options in ((), ("--draft", "none"), (*head, "--drafts", "0")):
            self.assertNotIn("/models/h", str(self.kubernetes(*options)))
        self.assertIn("--draft auto: the folders are in the pods", self.kubernetes("--draft", "auto"))
        self.assertIn("--draft-in: the draft is in the workers, but --drafts is 1", self.kubernetes(*head, "--draft-in", "worker", "--drafts", "1"))
        self.assertIn("--drafts must not be negative", self.kubernetes("--drafts=-1"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
