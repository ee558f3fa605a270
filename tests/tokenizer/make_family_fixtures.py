#!/usr/bin/env python3
"""Makes tests/tokenizer/fixtures/families: small tokenizers that are configured as those of published families of models, and what the
reference libraries make of 500 texts in 25 scripts and kinds.

  pip install tokenizers transformers
  tests/tokenizer/make_family_fixtures.py                            # writes them
  tests/tokenizer/make_family_fixtures.py --check                    # compares them with what these libraries give
  tests/tokenizer/make_family_fixtures.py --compare PROGRAM [--seed N] [--texts N] [--json] [FOLDER ...]

--compare: asks PROGRAM (tokenizer_encode of the build) for other texts, of all families or of the FOLDERs of models, and shows where it
differs. --json: only of those with a tokenizer.json, which need no transformers. texts.json holds the texts. The folder of a family has the files that published folders have, and expected.json: the tokens before
a text, and for each text the hashes (FNV-1a, 32 bits) of its ids, "1 2 3", and of the text that they decode to.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_tokenizer_fixtures import CORPUS, LLAMA3, QWEN2, write_json

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures/families"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPACE = "\u2581"

# A script: the characters of its words, as (first, last) of ranges.
SCRIPTS = {
    "Latin": [(0x61, 0x7a)] * 3 + [(0x41, 0x5a)], "accents": [(0x61, 0x7a), (0xc0, 0x17f), (0x1e00, 0x1eff)],
    "Cyrillic": [(0x430, 0x44f)] * 3 + [(0x410, 0x42f), (0x450, 0x45f)], "Greek": [(0x3b1, 0x3c9), (0x386, 0x3ce), (0x1f00, 0x1fff)],
    "Arabic": [(0x621, 0x64a)] * 3 + [(0x64b, 0x652), (0x660, 0x669)], "Hebrew": [(0x5d0, 0x5ea)] * 3 + [(0x5b0, 0x5bc)],
    "Devanagari": [(0x905, 0x939), (0x93e, 0x94d), (0x958, 0x95f)], "Bengali": [(0x985, 0x9b9), (0x9be, 0x9cd), (0x9dc, 0x9df)],
    "Tamil": [(0xb85, 0xbb9), (0xbbe, 0xbcd)], "Thai": [(0xe01, 0xe2e)] * 2 + [(0xe30, 0xe3a), (0xe40, 0xe4e)],
    "Lao": [(0xe81, 0xeae)] * 2 + [(0xeb0, 0xebd), (0xec0, 0xecd)], "Khmer": [(0x1780, 0x17a2), (0x17b6, 0x17d3)],
    "Georgian": [(0x10d0, 0x10fa)] * 3 + [(0x1c90, 0x1cba)], "Armenian": [(0x561, 0x587)] * 2 + [(0x531, 0x556)],
    "Ethiopic": [(0x1200, 0x1357), (0x135d, 0x137c)], "Han": [(0x4e00, 0x4eff), (0x6728, 0x6797), (0xf900, 0xf90f), (0x20000, 0x20010)],
    "Kana": [(0x3041, 0x3096), (0x30a1, 0x30fa), (0x3099, 0x309c), (0xff66, 0xff9f)],
    "Hangul": [(0xac00, 0xacff)] * 2 + [(0x1100, 0x1112), (0x1161, 0x1175), (0x11a8, 0x11c2)],
    "marks": [(0x61, 0x7a), (0x300, 0x345), (0x1ab0, 0x1abe), (0x20d0, 0x20dc)],
}
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇬🇪", "❤️", "1️⃣", "🌳", "\u200d", "\ufe0f", "🪓", "🏴\U000e0067\U000e0062\U000e007f"]
CODE = ["for (int i = 0; i < n; ++i) {\n", "    ", "\t", "return x**2;\n", "}\n\n", "def f(self, *args):\n", "#include <map>", "a->b", "::", "'s",
        "//", "/* x */", "\"\\n\"", "0xFF", "snake_case", "CamelCase", "I'LL", "we've", "x['k']", "</div>", "==", "!=", "...", "\r\n", "path/to/"]
BLANKS = [" ", "  ", "   ", "     ", " " * 16, " " * 33, "\n", "\n\n", "\n\n\n\n", "\t", "\t\t", "\r\n", "\r", "\u00a0", "\u3000", "\u2003", "\u2028",
          "\u0085", "\u200b", "\u1680", "1", "23", "456", "7890", "1234567", "3.14", "1,000", "½", "²", "٣٤", "Ⅷ", "१२", "a", "Z", "-", "_"]
CONTROLS = [chr(c) for c in range(0x20)] + ["\x7f", "\x80", "\x9f", "\u200e", "\u202e", "\u2066", "\ufeff", "\ufffd", "\ufffe", "\U0010ffff", "\u0378",
                                            "a", " ", "b"]
MARKERS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</s>", "<s>", "<unk>", "<pad>", "<bos>", "<eos>",
           "<start_of_turn>", "<end_of_turn>", "<unused3>", "<|user|>", "<|end|>", "<|assistant|>", "<|begin_of_text|>", "<|eot_id|>", "<table>",
           "<|endoftext", "|>", "<0x0A>", SPACE, SPACE * 2, SPACE * 3, "<|tool|>", "<mask>", "<|padding|>", "<|", "user", "\n", "\n\n\n", " ", "   ",
           "\t", "text", "森", "é", "e\u0301", "[multimodal]"]
MARKS = [", ", ". ", "! ", "? ", "\n", " ", " ", " ", " ", "  ", "'s ", "-", "\"", ": ", " (", ") ", "。", "、", "؟ ", "।", "/", "12", " 7 ", "\u200c", ""]


def characters(ranges, rng, n):
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(n))


def lexicon():
    """The words of each script. Texts and the corpora of the vocabularies take theirs from here."""
    rng = random.Random(11)
    return {name: [characters(ranges, rng, rng.randint(1, 7)) for _ in range(40)] for name, ranges in SCRIPTS.items()}


def sentence(words, rng, n):
    text = ""
    for _ in range(n):
        text += words[min(int(rng.expovariate(0.12)), len(words) - 1)] + rng.choice(MARKS)
    return text


def texts(seed=1, count=500):
    rng, words = random.Random(seed), lexicon()
    bags = {"emoji": EMOJI + ["a", " "], "code": CODE, "blanks": BLANKS, "controls": CONTROLS, "markers": MARKERS, "all": None}
    kinds = list(SCRIPTS) + list(bags)
    made = []
    for i in range(count):
        kind = kinds[i % len(kinds)]
        if kind == "all":
            pieces = EMOJI + CODE + BLANKS + CONTROLS + MARKERS + [w for some in words.values() for w in some[:9]]
            made.append("".join(rng.choices(pieces, k=rng.randint(1, 12))))
        elif kind in bags:
            made.append("".join(rng.choices(bags[kind], k=rng.randint(1, 10))))
        else:
            text = sentence(words[kind], rng, rng.randint(1, 7))
            if rng.random() < 0.4:  # a word of no vocabulary
                text += characters(SCRIPTS[kind], rng, rng.randint(1, 5))
            made.append(text)
    return made


def corpus():
    rng = random.Random(5)
    made = list(CORPUS)
    for words in lexicon().values():
        made += [sentence(words[:18], rng, 12) for _ in range(8)]
    return made + ["".join(rng.choices(CODE + BLANKS, k=12)) for _ in range(40)] + EMOJI * 3


def special(*contents, **flags):
    return [AddedToken(c, special=True, normalized=False, **flags) for c in contents]


def plain(*contents, **flags):
    return [AddedToken(c, special=False, normalized=False, **flags) for c in contents]


def byte_level(pattern, normalizer=None, size=900, first=(), **split):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizer
    if pattern:
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), **(split or {"behavior": "isolated"})),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    else:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(first), show_progress=False))
    return tok


def llama_like(specials, size=1500, prefix=True):
    """BPE over characters with byte fallback; tokens are words with a mark in front, as SentencePiece makes them."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", SPACE)
    trained.pre_tokenizer = pre_tokenizers.Split(SPACE, behavior="merged_with_next")
    counts = collections.Counter("".join(corpus()).replace(" ", SPACE))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:500]
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False,
        special_tokens=specials + [f"<0x{byte:02X}>" for byte in range(256)]))
    source = json.loads(trained.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in source["merges"]]
    tok = Tokenizer(models.BPE(vocab=source["vocab"], merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tok.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    return tok


def qwen3():
    tok = byte_level(QWEN2, normalizers.NFC())
    tok.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>") + plain("<tool_call>", "</tool_call>", "<think>", "</think>"))
    return {"tokenizer.json": json.loads(tok.to_str()),
            "tokenizer_config.json": {"add_bos_token": False, "add_prefix_space": False, "bos_token": None, "eos_token": "<|im_end|>",
                                      "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}}


def gemma(merges_as_lists):
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]"] + [f"<unused{i}>" for i in range(9)] + ["<start_of_turn>", "<end_of_turn>"]
    runs = ["\n" * n for n in range(1, 32)] + [SPACE * n for n in range(2, 32)] + ["<table>", "<h1>", "</h1>"]
    tok = llama_like(first + runs, prefix=False)
    tok.normalizer = normalizers.Replace(" ", SPACE)
    tok.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tok.add_tokens(special(*first) + plain(*runs))
    tok.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    data = json.loads(tok.to_str())
    if not merges_as_lists:
        data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
    return {"tokenizer.json": data, "tokenizer_config.json": {"add_bos_token": True, "add_eos_token": False, "bos_token": "<bos>", "eos_token": "<eos>",
                                                              "tokenizer_class": "GemmaTokenizer"}}


def phi3():
    tok = llama_like(["<unk>", "<s>", "</s>"])
    tok.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tok.add_tokens(special("<unk>", "<s>") + plain("</s>", rstrip=True) + special("<|endoftext|>")
                   + special("<|assistant|>", "<|system|>", "<|end|>", "<|user|>", rstrip=True))
    tok.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    return {"tokenizer.json": json.loads(tok.to_str()),
            "tokenizer_config.json": {"add_bos_token": False, "add_eos_token": False, "bos_token": "<s>", "eos_token": "<|endoftext|>",
                                      "legacy": False, "tokenizer_class": "LlamaTokenizer"}}


def phi4_mini():
    tok = byte_level(O200K, behavior="removed", invert=True)
    tok.add_tokens(special("<|endoftext|>") + special("<|assistant|>", "<|end|>", "<|user|>", rstrip=True)
                   + plain("<|tool|>", rstrip=True))
    return {"tokenizer.json": json.loads(tok.to_str()),
            "tokenizer_config.json": {"add_bos_token": False, "add_eos_token": False, "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
                                      "tokenizer_class": "GPT2Tokenizer"}}


def smollm3():
    data = json.loads(byte_level(LLAMA3).to_str())
    data["model"]["ignore_merges"] = True
    for word in ("Ġcuts", "æ£®æľ¨", "''"):  # no merge makes them, so only ignore_merges finds them
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_tokens(special("<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>") + plain("<think>", "</think>", "<tool_call>"))
    data = json.loads(tok.to_str())
    begin = tok.token_to_id("<|begin_of_text|>")
    data["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [begin], "tokens": ["<|begin_of_text|>"]}}}]}
    return {"tokenizer.json": data, "tokenizer_config.json": {"bos_token": None, "eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}}


def gpt_neox():
    tok = byte_level(None, normalizers.NFC(), first=["<|endoftext|>", "<|padding|>"])
    tok.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return {"tokenizer.json": json.loads(tok.to_str()),
            "tokenizer_config.json": {"add_prefix_space": False, "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
                                      "tokenizer_class": "GPTNeoXTokenizer", "unk_token": "<|endoftext|>"}}


def vocab_files(tok):
    model = json.loads(tok.to_str())["model"]
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    return {"vocab.json": model["vocab"], "merges.txt": "".join(line + "\n" for line in ["#version: 0.2"] + merges)}


def token_object(content, **flags):
    return dict({"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}, **flags)


def opt():
    named = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    config = {name: token_object(content, __type="AddedToken") for name, content in named.items()}
    return dict(vocab_files(byte_level(None, first=["<s>", "<pad>", "</s>", "<unk>"])), **{
        "special_tokens_map.json": {name: token_object(content) for name, content in named.items()},
        "tokenizer_config.json": dict(config, add_bos_token=True, add_prefix_space=False, errors="replace", tokenizer_class="GPT2Tokenizer"),
        "config.json": {"model_type": "opt", "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}})


def phi2():
    """Runs of blanks are tokens that the vocabulary of the model has not."""
    files = vocab_files(byte_level(None, first=["<|endoftext|>"]))
    size = len(files["vocab.json"])
    runs = [" " * n for n in range(31, 1, -1)] + ["\t" * n for n in range(9, 1, -1)]
    return dict(files, **{
        "added_tokens.json": {run: size + i for i, run in enumerate(runs)},
        "special_tokens_map.json": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
        "tokenizer_config.json": {"add_prefix_space": False, "tokenizer_class": "CodeGenTokenizer"}, "config.json": {"model_type": "phi"}})


def qwen2_files():
    """A folder of Qwen that has lost its tokenizer.json."""
    files = vocab_files(byte_level(QWEN2, normalizers.NFC()))
    size = len(files["vocab.json"])
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    return dict(files, **{
        "tokenizer_config.json": {
            "add_prefix_space": False, "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "added_tokens_decoder": {
                str(size + i): token_object(t, normalized=False, special=i < 3) for i, t in enumerate(tokens)}},
        "config.json": {"model_type": "qwen2"}})


FAMILIES = {"qwen3": qwen3, "gemma3": lambda: gemma(True), "gemma2": lambda: gemma(False), "phi3": phi3, "phi4_mini": phi4_mini, "smollm3": smollm3,
            "gpt_neox": gpt_neox, "opt": opt, "phi2": phi2, "qwen2_files": qwen2_files}


def reference(folder):
    """text -> (the ids with those added to it, the text that they decode to)"""
    if (folder / "tokenizer.json").is_file():
        tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: (tok.encode(text).ids, lambda ids: tok.decode(ids, skip_special_tokens=True))
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(str(folder), clean_up_tokenization_spaces=False)
    return lambda text: (tok(text).input_ids, lambda ids: tok.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def fnv(text):
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xffffffff
    return value


def make(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name.endswith(".json"):
            write_json(folder / name, content)
        else:
            (folder / name).write_text(content, encoding="utf8")
    encode = reference(folder)
    before = encode("")[0]
    expected = {"before": before, "ids": [], "decoded": []}
    for text in texts():
        ids, decode = encode(text)
        assert ids[:len(before)] == before
        ids = ids[len(before):]
        expected["ids"].append(fnv(" ".join(map(str, ids))))
        expected["decoded"].append(fnv(decode(ids)))
    write_json(folder / "expected.json", expected)


def make_all(out):
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "texts.json", texts())
    for name, family in FAMILIES.items():
        make(out / name, family())


def differing(out):
    names = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    return [n for n in names if not (FIXTURES / n).is_file() or (FIXTURES / n).read_bytes() != (out / n).read_bytes()]


def compare(program, folder, some):
    """How many texts PROGRAM reads in another way."""
    lines = "".join(json.dumps(text) + "\n" for text in some)
    run = subprocess.run([program, folder], input=lines, capture_output=True, encoding="utf8", check=True)
    encode, wrong = reference(folder), 0
    for text, line in zip(some, run.stdout.split("\n")[:-1], strict=True):
        answer = json.loads(line)
        ids, decode = encode(text)
        if answer != {"ids": ids, "decoded": decode(ids)}:
            wrong += 1
            if wrong <= 3:
                print(f"{folder.name}: {text!r}\n  wanted {ids} {decode(ids)!r}\n  got    {answer['ids']} {answer['decoded']!r}")
    print(f"{folder.name}: {len(some)} texts, {wrong} differ")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--compare", metavar="PROGRAM")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    if args.compare:
        folders = [f for f in args.folders or [FIXTURES / name for name in FAMILIES]
                   if not args.json or (f / "tokenizer.json").is_file()]
        sys.exit(sum(compare(args.compare, folder, texts(args.seed, args.texts)) for folder in folders) > 0)
    if not args.check:
        make_all(FIXTURES)
        return
    with tempfile.TemporaryDirectory() as made:
        make_all(pathlib.Path(made))
        wrong = differing(pathlib.Path(made))
    if wrong:
        sys.exit("not what these libraries give: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
