"""The tokenizer and the chat template of a model folder, for a target that no server answers for. Needs tokenizers and Jinja2."""
import json
import os

from draft_distillation.pieces import DataError


class Chat:
    """`before` and `after` are the ids around a user's message, from the first of the text to the beginning of the answer; None without a chat template."""

    def __init__(self, folder):
        import tokenizers
        path = os.path.join(folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise DataError(f"{path}: is not there; a target in PyTorch needs it (sample asks a server, which has other tokenizers too)")
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the library raises no narrower one
            raise DataError(f"{path}: {error}") from error
        self.template, self.words = self.read_template(folder)
        self.before = self.after = None
        first = self.tokenizer.token_to_id(self.words["bos_token"]) if self.words["add_bos_token"] else None
        self.begin = [] if first is None else [first]
        if self.template:
            first, second = (self.asked(text) for text in ("A", "B"))
            same = [a == b for a, b in zip(first, second)]
            begin, end = same.index(False), same[::-1].index(False)
            self.before, self.after = first[:begin], first[len(first) - end:]

    @staticmethod
    def read_template(folder):
        """(the compiled template or None, what tokenizer_config.json says that it is given)"""
        import jinja2
        import jinja2.sandbox
        path, content = os.path.join(folder, "tokenizer_config.json"), {}
        if os.path.isfile(path):
            try:
                with open(path, encoding="utf8") as file:
                    content = json.load(file)
            except ValueError as error:
                raise DataError(f"{path}: {error}") from error
        text, other = content.get("chat_template"), os.path.join(folder, "chat_template.jinja")
        if os.path.isfile(other):
            with open(other, encoding="utf8") as file:
                text = file.read()
        words = {"add_bos_token": content.get("add_bos_token") is True}
        for name in ("bos_token", "eos_token"):
            word = content.get(name)
            words[name] = word.get("content") if isinstance(word, dict) else word or ""
        if not isinstance(text, str):
            return None, words
        try:
            return jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(text), words
        except jinja2.TemplateError as error:
            raise DataError(f"{folder}: its chat template: {error}") from error

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def asked(self, text):
        """The ids of a prompt: the user's message in the template, or the text itself."""
        if not self.template:
            return self.begin + self.encode(text)
        return self.encode(self.template.render(messages=[{"role": "user", "content": text}], add_generation_prompt=True, **self.words))

    def message(self, text):
        """The ids of a user's message that is not at its end."""
        if not text:
            return self.before
        ids = self.asked(text)
        return ids[:len(ids) - len(self.after)]
