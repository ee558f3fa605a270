"""ONNX Runtime GenAI as a peer: greedy and beam search of several prompts in one batch, in f32, or with weights of 8 or 4 bits
(MatMulNBits, groups of 32, activations in 8 bits there and f32 elsewhere). K and V are f32. Its continuous batching needs PagedAttention,
which it has on GPUs alone, so requests that come while a batch runs wait for its end, and a batch has at most 32."""
import os
import pathlib

import numpy
import onnxruntime_genai

import onnx_model
from answering import Refusal, serve

LONGEST = 1024  # tokens of a sequence
MOST_TOGETHER = 32  # its limit


class Batch:
    """As answering.py asks for it: those that wait begin together."""

    def __init__(self, start):
        self.start, self.waiting, self.running, self.generator, self.count = start, {}, {}, None, 0

    def add(self, prompt, tokens):
        self.count += 1
        self.waiting[self.count] = prompt, tokens
        return self.count

    def step(self):
        if not self.running:
            begun = {name: self.waiting.pop(name) for name in list(self.waiting)[:MOST_TOGETHER]}
            self.running = {name: tokens for name, (_, tokens) in begun.items()}
            self.generator = self.start([prompt for prompt, _ in begun.values()], 1, max(self.running.values()))
        self.generator.generate_next_token()
        came = [(name, 1, left == 1) for name, left in self.running.items()]
        self.running = {name: left - 1 for name, left in self.running.items() if left > 1}
        return came

    def clear(self):
        self.waiting, self.running, self.generator = {}, {}, None


def load(folder, work, kind, threads):
    if pathlib.Path(folder).is_file() or kind not in onnx_model.BITS:
        raise Refusal(f"ONNX Runtime GenAI is not given {'a GGUF file' if pathlib.Path(folder).is_file() else kind}")
    converted = os.path.join(work, kind)
    if not os.path.isdir(converted):
        onnx_model.write(folder, converted, kind, LONGEST, threads)
    model = onnxruntime_genai.Model(converted)

    def start(prompts, width, tokens):
        if len(set(map(len, prompts))) > 1:
            raise Refusal("prompts of a batch must be equally long")
        params, length = onnxruntime_genai.GeneratorParams(model), len(prompts[0]) + tokens
        params.set_search_options(batch_size=len(prompts), num_beams=width, num_return_sequences=1, do_sample=False, min_length=length,
                                  max_length=length, past_present_share_buffer=width == 1)
        generator = onnxruntime_genai.Generator(model, params)
        generator.append_tokens(numpy.array(prompts, dtype=numpy.int32))
        return generator

    def generate(prompts, width, tokens):
        texts = []
        for begin in range(0, len(prompts), MOST_TOGETHER):
            together = prompts[begin:begin + MOST_TOGETHER]
            generator = start(together, width, tokens)
            while not generator.is_done():
                generator.generate_next_token()
            texts += [generator.get_sequence(i).tolist()[len(ids):] for i, ids in enumerate(together)]
        return texts

    return onnxruntime_genai.__version__, generate, Batch(start)


serve(load)
