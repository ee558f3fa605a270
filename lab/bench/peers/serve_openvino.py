"""OpenVINO GenAI as a peer: its continuous batching pipeline, greedy and beam search. It reads the model from a GGUF file that gguf_model.py
writes. f32 and bf16 keep the matrices in f16, which has all values of a bf16 checkpoint but the smallest, and compute in the type asked
for; int8 and int4 are Q8_0 and Q4_0, computed as OpenVINO chooses beside activations in bf16. K and V are f32 or bf16."""
import os
import pathlib

import numpy
import openvino
import openvino_genai

import gguf_model
from answering import Refusal, serve
from workload import FILE

KEPT = {"f32": "f16", "bf16": "f16", "int8": "int8", "int4": "int4"}  # the types of gguf_model.py
CACHE_GB = 1
MOST_TOGETHER = 64
MOST_ROWS = 1024  # of a step; a beam search that is wider returns texts of one token (2026.4.1)


class Batch:
    """As answering.py asks for it."""

    def __init__(self, pipeline):
        self.pipeline, self.running, self.count = pipeline, {}, 0

    def settings(self, width, tokens, best=1):
        chosen = openvino_genai.GenerationConfig()
        chosen.max_new_tokens, chosen.ignore_eos, chosen.do_sample = tokens, True, False
        if width > 1:
            chosen.num_beams, chosen.num_return_sequences, chosen.stop_criteria = width, best, openvino_genai.StopCriteria.NEVER
        return chosen

    def add(self, prompt, tokens, width=1):
        self.count += 1
        ids = openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
        self.running[self.count] = self.pipeline.add_request(self.count, ids, self.settings(width, tokens)), tokens
        return self.count

    def step(self):
        self.pipeline.step()
        came = []
        for name, (handle, left) in list(self.running.items()):
            ids = []
            while handle.can_read():
                ids += [i for part in handle.read().values() for i in part.generated_ids]
            if ids:
                self.running[name] = handle, left - len(ids)
                came.append((name, len(ids), left <= len(ids)))
            if left <= len(ids):
                del self.running[name]
        return came

    def clear(self):
        for handle, _ in self.running.values():
            handle.cancel()
        self.running.clear()
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()


def load(folder, work, kind, threads):
    if kind == FILE or pathlib.Path(folder).is_file():
        raise Refusal("OpenVINO GenAI is not given GGUF files of others: it reads Q4_1 wrongly (2026.4.1)")
    path = os.path.join(work, f"{KEPT[kind]}.gguf")
    if not os.path.exists(path):
        gguf_model.write(folder, path, KEPT[kind])
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs, scheduler.enable_prefix_caching = CACHE_GB, MOST_TOGETHER, False
    scheduler.max_num_batched_tokens = MOST_ROWS
    computed = "f32" if kind == "f32" else "bf16"
    pipeline = openvino_genai.ContinuousBatchingPipeline(path, scheduler, "CPU", {
        "INFERENCE_PRECISION_HINT": computed, "KV_CACHE_PRECISION": computed, "INFERENCE_NUM_THREADS": threads})
    batch = Batch(pipeline)

    def generate(prompts, width, tokens, best=None):
        chosen = batch.settings(width, tokens, best or 1)
        results = pipeline.generate([openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts], [chosen] * len(prompts))
        return [[list(ids) for ids in result.m_generation_ids] if best else list(result.m_generation_ids[0]) for result in results]

    return openvino_genai.__version__, generate, batch


serve(load)
