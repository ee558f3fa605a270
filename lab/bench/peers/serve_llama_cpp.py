"""llama.cpp as a peer, through the C API in llama-cpp-python: greedy decoding of several sequences in one batch. It has no beam
search. A model that is a folder is written as GGUF by gguf_model.py in f32, which llama.cpp itself rounds (bf16) or quantises (Q8_0, Q4_0)."""
import ctypes
import os

import llama_cpp
import numpy

import gguf_model
from answering import Refusal, serve
from workload import FILE

# How weights are kept: the ftype of llama_model_quantize, or None for the file in f32.
FILE_TYPES = {"f32": None, "bf16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, "int8": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
              "int4": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0}
LARGEST_BATCH = 512


def file_of(folder, work, kind):
    if kind == FILE:
        return folder
    plain = os.path.join(work, "f32.gguf")
    if not os.path.exists(plain):
        gguf_model.write(folder, plain, "f32")
    if FILE_TYPES[kind] is None:
        return plain
    path = os.path.join(work, f"{kind}.gguf")
    if not os.path.exists(path):
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[kind]
        if llama_cpp.llama_model_quantize(plain.encode(), path.encode(), params) != 0:
            raise Refusal(f"llama.cpp does not convert the model to {kind}")
    return path


class Sequences:
    """A context of `count` sequences of at most `length` tokens."""

    def __init__(self, model, kind, threads, count, length):
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max = count
        params.n_ctx = count * length
        params.n_batch = LARGEST_BATCH
        params.n_threads = params.n_threads_batch = threads
        if kind == "f32":
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        self.context = llama_cpp.llama_init_from_model(model, params)
        if not self.context:
            raise Refusal(f"llama.cpp makes no context for {count} sequences of {length} tokens")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.batch = llama_cpp.llama_batch_init(LARGEST_BATCH, 0, 1)

    def decode(self, rows):
        """One pass over (token, position, sequence, whether its logits are wanted). Gives the likeliest next tokens."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, position, 1, sequence, wanted
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise Refusal("llama_decode failed")
        found = {}
        for i, (_, _, sequence, wanted) in enumerate(rows):
            if wanted:
                logits = ctypes.cast(llama_cpp.llama_get_logits_ith(self.context, i), ctypes.POINTER(ctypes.c_float * self.vocabulary))
                found[sequence] = int(numpy.frombuffer(logits.contents, numpy.float32).argmax())
        return found

    def greedy(self, prompts, tokens):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        rows = [(token, i, s, i == len(ids) - 1) for s, ids in enumerate(prompts) for i, token in enumerate(ids)]
        latest = {}
        for begin in range(0, len(rows), LARGEST_BATCH):
            latest.update(self.decode(rows[begin:begin + LARGEST_BATCH]))
        texts = [[latest[s]] for s in range(len(prompts))]
        for step in range(tokens - 1):
            latest = self.decode([(text[-1], len(prompts[s]) + step, s, True) for s, text in enumerate(texts)])
            for s, text in enumerate(texts):
                text.append(latest[s])
        return texts


def load(folder, work, kind, threads):
    if kind != FILE and kind not in FILE_TYPES:
        raise Refusal(f"llama.cpp is not given {kind}")
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(file_of(folder, work, kind).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise Refusal("llama.cpp does not load the model")
    contexts = {}

    def generate(prompts, width, tokens):
        if width > 1:
            raise Refusal("llama.cpp has no beam search")
        size = (len(prompts), max(map(len, prompts)) + tokens)
        if size not in contexts:
            contexts[size] = Sequences(model, kind, threads, *size)
        return contexts[size].greedy(prompts, tokens)

    return llama_cpp.__version__, generate


serve(load)
