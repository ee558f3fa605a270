"""The tokenizer of a model folder: tokenizer.json of a byte-level BPE, which needs the Python module tokenizers, or tokenizer.model of
SentencePiece."""
import os
import shutil

from pair_training.data import DataError

JSON, SENTENCEPIECE = "tokenizer.json", "tokenizer.model"
SETTINGS = "tokenizer_config.json"  # belongs to a tokenizer.json


def file_in(folder):
    """The file of its tokenizer."""
    for name in (JSON, SENTENCEPIECE):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise DataError(f"{folder}: has no tokenizer, expected {JSON} or {SENTENCEPIECE}")


def modules_for(path):
    return ["tokenizers" if path.endswith(".json") else "sentencepiece"]


class Tokenizer:
    """`size` ids; encode(text) gives ids without BOS and EOS. A line feed ends a token."""

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
            try:
                inner = sentencepiece.SentencePieceProcessor(model_file=path)
            except (OSError, RuntimeError) as error:
                raise DataError(f"{path}: is no tokenizer: {error}") from error
            self.size, self.encode = inner.get_piece_size(), inner.encode
        if self.encode("a:\nb") != self.encode("a:\n") + self.encode("b"):
            raise DataError(f"{path}: joins what is before a line feed with what follows it, expected a token that ends there")


def copy(path, folder):
    """Puts the file, and what belongs to it, into a folder."""
    files = {path: SENTENCEPIECE}
    if path.endswith(".json"):
        files = {path: JSON, os.path.join(os.path.dirname(path), SETTINGS): SETTINGS}
    for source, name in files.items():
        place = os.path.join(folder, name)
        if os.path.exists(source) and not (os.path.exists(place) and os.path.samefile(source, place)):
            shutil.copy(source, place)
