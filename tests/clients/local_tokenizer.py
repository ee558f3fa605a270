"""A tokenizer that is made here, for clients that count tokens by themselves. Needs the package tokenizers."""
import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from checks import FOLDER

TEXT = "Once upon a time, there was a little girl. She had a friend, a big dog. One day, they went to the park and played."


def tokenizer_folder():
    """A folder that Transformers reads as a tokenizer: bytes and a few pairs of them."""
    folder = pathlib.Path(FOLDER, "tokenizer")
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>", pad_token="</s>", model_max_length=4096)))
    return folder
