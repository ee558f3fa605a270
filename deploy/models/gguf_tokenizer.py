"""The tokenizer of a GGUF file as the files of a Hugging Face folder. "gpt2" vocabularies (byte-level BPE with merges) become
tokenizer.json. "llama" vocabularies (SentencePiece's BPE with scores) become tokenizer.model, the Protobuf message that
SentencePiece reads. Both get tokenizer_config.json and generation_config.json. Nothing is approximated: a kind of tokenizer that is
not listed here is refused by name (gguf_file.BadModel)."""
import json
import os
import struct

# token_type of a GGUF file; SentencePiece numbers its pieces alike.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# How byte-level tokenizers cut a text into words (tokenizer.ggml.pre), as the pre_tokenizer of a tokenizer.json. ByteLevel has the
# expression of GPT-2.
LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = ("gpt-2", "phi-2", "olmo", "mpt")
DIGITS = ("smollm", "starcoder", "refact", "codeshell", "minerva-7b")  # each digit is a word
LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
# Texts of tokens that end a turn. One counts if it is a control token and the chat template writes it.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>", "<|endoftext|>")


class Tokenizer:
    """The vocabulary of a file, checked."""

    def __init__(self, file):
        self.file = file
        self.kind = file.text("tokenizer.ggml.model")
        if self.kind not in ("gpt2", "llama"):
            raise file.error(f"metadata tokenizer.ggml.model: a tokenizer of kind {self.kind} is not read (gpt2 and llama are)")
        self.tokens = file.items("tokenizer.ggml.tokens", str)
        if not self.tokens:
            raise file.error("metadata tokenizer.ggml.tokens: expected at least one token")
        self.types = self._one_for_each("tokenizer.ggml.token_type", int)
        self.template = file.text("tokenizer.chat_template", default="")
        self._check_tokens()
        self.pre = self._pre() if self.kind == "gpt2" else ""
        self.bos, self.eos, self.unknown, self.padding = (self._id(name) for name in ("bos", "eos", "unknown", "padding"))
        # Without the flags the programs that read GGUF begin a text with BOS if the vocabulary is of SentencePiece or Llama 3.
        self.add_bos = file.boolean("tokenizer.ggml.add_bos_token", self.kind == "llama" or self.pre in LLAMA3) and self.bos is not None
        self.add_eos = file.boolean("tokenizer.ggml.add_eos_token", False) and self.eos is not None
        self.space_first = file.boolean("tokenizer.ggml.add_space_prefix", self.kind == "llama")

    def _one_for_each(self, key, kind):
        values = self.file.items(key, kind)
        if len(values) != len(self.tokens):
            raise self.file.error(f"metadata {key}: {len(values)} values for {len(self.tokens)} tokens")
        return values

    def _check_tokens(self):
        first = {}
        for i, (token, kind) in enumerate(zip(self.tokens, self.types)):
            if not token:
                raise self.file.error(f"metadata tokenizer.ggml.tokens: token {i} is empty")
            if token in first:
                raise self.file.error(f"metadata tokenizer.ggml.tokens: {token!r} is both token {first[token]} and token {i}")
            if not NORMAL <= kind <= BYTE:
                raise self.file.error(f"metadata tokenizer.ggml.token_type: token {i} has type {kind}, expected 1 to 6")
            first[token] = i
        if self.kind == "llama" and self.types.count(UNKNOWN) != 1:
            raise self.file.error(f"metadata tokenizer.ggml.token_type: {self.types.count(UNKNOWN)} unknown tokens, expected one")

    def _pre(self):
        pre = self.file.text("tokenizer.ggml.pre", default="default")
        if pre not in GPT2 + DIGITS + LLAMA3:
            raise self.file.error(f"metadata tokenizer.ggml.pre: words of kind {pre} are not read "
                                  f"({', '.join(GPT2 + DIGITS + LLAMA3)} are)")
        return pre

    def _id(self, name):
        key = f"tokenizer.ggml.{name}_token_id"
        if key not in self.file.metadata or self.file.metadata[key] in (0xffffffff, -1):  # not given
            return None
        return self.file.number(key, most=len(self.tokens) - 1)

    def end_ids(self):
        """The tokens that end an answer, ascending."""
        ids = {self.eos, self._id("eot"), self._id("eom")} - {None}
        ids |= {i for i, (token, kind) in enumerate(zip(self.tokens, self.types))
                if kind == CONTROL and token in TURN_ENDS and token in self.template}
        return sorted(ids)

    def write(self, folder):
        if self.kind == "gpt2":
            _write_json(folder, "tokenizer.json", self._tokenizer_json())
        else:
            with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
                file.write(self._sentencepiece_model())
        _write_json(folder, "tokenizer_config.json", self._config())
        ends = self.end_ids()
        _write_json(folder, "generation_config.json", _given(bos_token_id=self.bos, eos_token_id=ends or None, pad_token_id=self.padding))

    def _text(self, token):
        return None if token is None else self.tokens[token]

    def _config(self):
        return _given(
            tokenizer_class="PreTrainedTokenizerFast" if self.kind == "gpt2" else "LlamaTokenizer",
            bos_token=self._text(self.bos), eos_token=self._text(self.eos), unk_token=self._text(self.unknown),
            pad_token=self._text(self.padding), add_bos_token=self.add_bos, add_eos_token=self.add_eos,
            clean_up_tokenization_spaces=False, chat_template=self.template or None)

    # ---- byte-level BPE ----
    def _tokenizer_json(self):
        added = [dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=kind == CONTROL)
                 for i, (token, kind) in enumerate(zip(self.tokens, self.types)) if kind in (CONTROL, USER_DEFINED)]
        return dict(
            version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=self._pre_tokenizer(),
            post_processor=self._post_processor(),
            decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
            model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                       byte_fallback=False, ignore_merges=self.pre in LLAMA3, vocab={token: i for i, token in enumerate(self.tokens)},
                       merges=self._merges()))

    def _merges(self):
        """As in the file, "left right"; the space of a token is written as another character. Every part must be a token."""
        merges = self.file.items("tokenizer.ggml.merges", str)
        known = set(self.tokens)
        for i, merge in enumerate(merges):
            left, _, right = merge.partition(" ")
            if not (left in known and right in known and left + right in known):
                raise self.file.error(f"metadata tokenizer.ggml.merges[{i}]: {merge!r}, expected two tokens that form a third")
        return merges

    def _pre_tokenizer(self):
        def byte_level(use_regex):
            return dict(type="ByteLevel", add_prefix_space=self.space_first, trim_offsets=True, use_regex=use_regex)

        if self.pre in GPT2:
            return byte_level(True)
        if self.pre in DIGITS:
            return dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), byte_level(True)])
        words = dict(type="Split", pattern=dict(Regex=LLAMA3_WORDS), behavior="Isolated", invert=False)
        return dict(type="Sequence", pretokenizers=[words, byte_level(False)])

    def _post_processor(self):
        """BOS and EOS around each text, as far as the file asks for them."""
        before, after = [self.bos] * self.add_bos, [self.eos] * self.add_eos
        if not before + after:
            return None
        text = dict(Sequence=dict(id="A", type_id=0))
        tokens = {self.tokens[i]: dict(id=self.tokens[i], ids=[i], tokens=[self.tokens[i]]) for i in before + after}

        def around(parts):
            return ([dict(SpecialToken=dict(id=self.tokens[i], type_id=0)) for i in before] + parts +
                    [dict(SpecialToken=dict(id=self.tokens[i], type_id=0)) for i in after])

        return dict(type="TemplateProcessing", single=around([text]), pair=around([text]) + around([dict(Sequence=dict(id="B", type_id=1))]),
                    special_tokens=tokens)

    # ---- SentencePiece ----
    def _sentencepiece_model(self):
        scores = self._one_for_each("tokenizer.ggml.scores", float)
        pieces = [_bytes(1, _bytes(1, token.encode()) + _float(2, score) + _integer(3, kind))
                  for token, score, kind in zip(self.tokens, scores, self.types)]
        byte_fallback = BYTE in self.types
        trainer = (_integer(3, 2) + _integer(4, len(self.tokens)) + _integer(35, byte_fallback) +  # 2: BPE
                   _integer(40, self.types.index(UNKNOWN)) + _integer(41, -1 if self.bos is None else self.bos) +
                   _integer(42, -1 if self.eos is None else self.eos))
        normalizer = (_bytes(1, b"identity") + _integer(3, self.space_first) +
                      _integer(4, self.file.boolean("tokenizer.ggml.remove_extra_whitespaces", False)) + _integer(5, True))
        return b"".join(pieces) + _bytes(2, trainer) + _bytes(3, normalizer)


def _given(**fields):
    return {name: value for name, value in fields.items() if value is not None}


def _write_json(folder, name, content):
    with open(os.path.join(folder, name), "w", encoding="utf8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)
        file.write("\n")


# ---- Protobuf fields ----
def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _integer(field, value):
    return _varint(field << 3) + _varint(int(value))


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _bytes(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content
