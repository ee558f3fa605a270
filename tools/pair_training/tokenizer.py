"""The tokenizer of a model folder: tokenizer.model of SentencePiece, or tokenizer.json of a byte-level BPE, which needs the Python
module tokenizers."""
import os
import shutil

from pair_training.data import DataError

FILES = {"tokenizer.model": ("tokenizer.model",), "tokenizer.json": ("tokenizer.json", "tokenizer_config.json")}


def file_in(folder):
    """The file of its tokenizer."""
    for name in FILES:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise DataError(f"{folder}: has no tokenizer, expected tokenizer.model or tokenizer.json")


def modules_for(path):
    return ["tokenizers" if path.endswith(".json") else "sentencepiece"]


class Tokenizer:
    """`size` ids; encode(text) gives ids without BOS and EOS."""

    def __init__(self, path):
        if path.endswith(".json"):
            import tokenizers
            try:
                inner = tokenizers.Tokenizer.from_file(path)
            except Exception as error:  # the library raises nothing more precise
                raise DataError(f"{path}: is no tokenizer: {error}") from error
            self.size = inner.get_vocab_size()
            self.encode = lambda text: inner.encode(text, add_special_tokens=False).ids
        else:
            import sentencepiece
            inner = sentencepiece.SentencePieceProcessor(model_file=path)
            self.size, self.encode = inner.get_piece_size(), inner.encode


def copy(path, folder):
    """Puts the file, and what belongs to it, into a folder."""
    for name in FILES[os.path.basename(path)]:
        source = os.path.join(os.path.dirname(path), name)
        if not os.path.exists(os.path.join(folder, name)) or not os.path.samefile(source, os.path.join(folder, name)):
            shutil.copy(source, os.path.join(folder, name))
