#!/usr/bin/env python3
"""Makes tests/tokenizer/fixtures: small tokenizers of every kind that is served, and the results of the reference libraries.

  pip install tokenizers sentencepiece
  tests/tokenizer/make_tokenizer_fixtures.py --out tests/tokenizer/fixtures

texts.json holds the texts. Each fixture is a folder with tokenizer.json or tokenizer.model, as in a model folder, and
expected.json: the special tokens before a text, and for each text its ids and the text that they decode to.
"""
import argparse
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

CORPUS = [
    "A coppice is a wood that is cut back to its stools and grows again.",
    "Each round cuts the forest back to the beams that were accepted.",
    "The draft model proposes, the target model decides, and nobody has to wait for long.",
    "It's the gardener's own tree; they'll prune it when they've time, won't they?",
    "In 2024 there were 1,234 trees, 56 hedges and 7 ponds; in 2025 there were 1,300.",
    "SELECT name, count(*) FROM trees WHERE height > 12.5 GROUP BY name;\n\tORDER BY 2 DESC",
    "for (int i = 0; i < n; ++i) {\n    sum += rows[i] * weights[i];\n}\n",
    "Der Wald wächst über die Hügel, und die Bäume trägt der Wind fort.",
    "La forêt repousse après l'été; les élèves y cueillent des mûres à l'aube.",
    "El niño soñó con un árbol más alto que la montaña.",
    "森の木は切られても、また芽を出して育つ。",
    "树木被砍伐之后,又会重新生长起来。",
    "나무는 베어져도 다시 자란다.",
    "Лес растёт снова, и птицы возвращаются весной.",
    "الغابة تنمو من جديد بعد القطع.",
    "जंगल फिर से उगता है।",
    "🌳🌲🌴 grow, 🪓 cuts, 🌱 sprouts, and 😀 laughs.",
    "  leading blanks, trailing blanks  \n\n  and an empty line above\n",
] * 3

TEXTS = [
    "", " ", "  ", "   ", "a", " a", "a ", "\n", "\n\n", " \n", "\t\t", "\r\n", " a  b   c    d",
    "The forest grows.", "the forest  grows\n\n\nagain", "IT'S they'll WE'VE I'd 'tis 's",
    "1 12 123 1234 12345 3.14159 1,000,000", "½ ² ٣ Ⅷ 一二三",
    "naïve café — “quoted” … déjà vu", "cafe\u0301 e\u0301\u0323 A\u030A \u212B \u1E9B\u0323",
    "\u1112\u1161\u11AB\u1100\u1173\u11AF 한글", "森の木は切られても", "树木被砍伐", "Лес растёт", "الغابة تنمو",
    "जंगल फिर से", "😀😃👍🏽👨‍👩‍👧‍👦🏳️‍🌈", "a😀b 🪓", "\u00a0nbsp\u2003em\u3000wide\u0085nel\u2028ls",
    "\u2581mark\u2581 \u2581", "x\u0000y\u0007z\u007f", "<s>hi</s>", "<unk><pad>", "<|end|>after<|end|>", "<|end|",
    "before <|mid|> after", "  <|mid|>  x", "say addedword and addedwords", "tail addedword", "<0x41><0xE6>",
    "def f(x):\n    return x**2  # square\n", "a\u200bb\u200d\ufeffc", "ZWJ\u0301\u0301\u0301", "\U00010348\U0010ffff",
    "longwordwithoutanyspacesinsideitatallwhichgoesonandonandonandonandon", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ſ's 'ſ K'LL", "…!?!?!!..", "http://example.com/a?b=c&d=e#f", "\u01c5\u01c8 ǅ ǈ", "line1\r\nline2\rline3\n\n  \n",
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def texts():
    rng = random.Random(7)
    alphabet = list("ab eht  \n'sl0123.,-_éüß森木나무😀🌳\u0301\u2581<>|") + ["the", " for", "<|end|>", "addedword"]
    return TEXTS + CORPUS[:18] + ["".join(rng.choices(alphabet, k=rng.randint(1, 40))) for _ in range(60)]


def byte_level(pattern, size, normalizer=None):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizer
    if pattern:
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tok


def gpt2():
    tok = byte_level(None, 420)  # the pattern built into ByteLevel
    tok.add_special_tokens(["<|end|>"])
    tok.add_tokens([AddedToken("addedword", normalized=True), AddedToken("<|mid|>", lstrip=True, rstrip=True)])
    tok.post_processor = processors.ByteLevel(trim_offsets=True)
    return json.loads(tok.to_str())


def llama3():
    tok = byte_level(LLAMA3, 420)
    tok.add_special_tokens(["<|begin|>", "<|end|>"])
    begin = tok.token_to_id("<|begin|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])])
    data = json.loads(tok.to_str())
    data["model"]["ignore_merges"] = True
    # No merge makes this word; only ignore_merges finds it.
    data["model"]["vocab"]["Ġcuts"] = data["model"]["vocab"].get("Ġcuts", begin + 2)
    return data


def qwen2():
    tok = byte_level(QWEN2, 420, normalizers.NFC())
    tok.add_special_tokens(["<|end|>"])
    data = json.loads(tok.to_str())
    data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]  # the older spelling
    return data


def sentencepiece_like(metaspace):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    space = "\u2581"
    if metaspace:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement=space, prepend_scheme="first", split=False)
        tok.decoder = decoders.Sequence([decoders.Replace(space, " "), decoders.ByteFallback(),
                                         decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    else:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
        tok.decoder = decoders.Sequence([decoders.Replace(space, " "), decoders.ByteFallback(),
                                         decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    trained.pre_tokenizer = pre_tokenizers.Split(space, behavior="merged_with_next")
    trained.train_from_iterator(CORPUS[:10], trainers.BpeTrainer(
        vocab_size=520, special_tokens=specials, show_progress=False))
    source = json.loads(trained.to_str())["model"]
    data = json.loads(tok.to_str())
    data["model"]["vocab"] = source["vocab"]
    data["model"]["merges"] = source["merges"]
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    if not metaspace:
        tok.add_tokens([AddedToken("addedword", normalized=True)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return json.loads(tok.to_str())


def byte_fallback_off():
    """A run of unknown characters becomes one <unk>. Digits are split. A space is added before the first word."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tok.decoder = decoders.Metaspace(prepend_scheme="always")
    tok.train_from_iterator(CORPUS[:6], trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], show_progress=False))
    return json.loads(tok.to_str())


def write_json(path, data, **options):
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":"), **options) + "\n")


def make_json_fixture(out, data):
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "tokenizer.json", data)
    tok = Tokenizer.from_file(str(out / "tokenizer.json"))
    before = tok.encode("").ids
    expected = []
    for text in texts():
        ids = tok.encode(text, add_special_tokens=False).ids
        assert tok.encode(text).ids == before + ids
        expected.append({"ids": ids, "decoded": tok.decode(ids, skip_special_tokens=True)})
    write_json(out / "expected.json", {"before": before, "texts": expected})


def make_model_fixture(out, prefix, **options):
    import sentencepiece  # here, since other programs use this file without it
    out.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=str(out / "tokenizer"), model_type="bpe",
        normalization_rule_name="identity", unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        add_dummy_prefix=prefix, minloglevel=2, num_threads=1, **options)
    (out / "tokenizer.vocab").unlink()
    write_json(out / "config.json", {"bos_token_id": 1, "eos_token_id": [2]})
    tok = sentencepiece.SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
    expected = []
    for text in texts():
        ids = tok.encode(text)
        known = [token for token in ids if token != tok.unk_id()]  # <unk> is a special token: skipped
        expected.append({"ids": ids, "decoded": tok.decode(known)})
    write_json(out / "expected.json", {"before": [1], "texts": expected})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "texts.json", texts())
    make_json_fixture(out / "byte_level_gpt2", gpt2())
    make_json_fixture(out / "byte_level_llama3", llama3())
    make_json_fixture(out / "byte_level_qwen2", qwen2())
    make_json_fixture(out / "byte_fallback_prepend", sentencepiece_like(metaspace=False))
    make_json_fixture(out / "byte_fallback_metaspace", sentencepiece_like(metaspace=True))
    make_json_fixture(out / "unknown_fused", byte_fallback_off())
    make_model_fixture(out / "sentencepiece_prefix", True, vocab_size=600, byte_fallback=True,
                       remove_extra_whitespaces=False)
    make_model_fixture(out / "sentencepiece_no_prefix", False, vocab_size=600, byte_fallback=True,
                       remove_extra_whitespaces=False, user_defined_symbols=["\n"], split_digits=True)
    make_model_fixture(out / "sentencepiece_unknown", True, vocab_size=300, byte_fallback=False,
                       remove_extra_whitespaces=True, character_coverage=0.98)


if __name__ == "__main__":
    main()
