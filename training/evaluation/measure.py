"""A run: every question with every variant, in random order within a block of questions so that a drift of the machine hits all
variants alike. Each answer becomes a record."""
import random
import threading
import time

from . import tasks
from .server import ServerError
from .sql_format import sql_grammar


class Run:
    """Sends the questions that a record file does not have yet. The caller's thread owns it."""

    def __init__(self, server, task, questions, variants, arguments, file, tell):
        """tell(text): progress."""
        self.server, self.task, self.questions, self.variants = server, task, questions, variants
        self.arguments, self.file, self.tell = arguments, file, tell
        self.answered, self.left_out = file.done()

    def body(self, question, variant):
        prompt = {"messages": [{"role": "user", "content": question.prompt}]} if self.arguments.chat else {"prompt": question.prompt}
        scored = {}
        if variant.setting.format:
            scored = {"structured_outputs": {"grammar": sql_grammar(question.prompt)}}
        elif self.task == "prompts":  # beams return all their hypotheses, so that distinct answers can be counted
            request = variant.setting.request
            scored = {"logprobs": True if self.arguments.chat else 0, "n": request.get("beam_width", request.get("n", 1))}
        # Sample i has seed + i: the samples of two questions never share one.
        return dict(variant.body(), **prompt, **scored, seed=self.arguments.seed + 1000 * question.line, return_token_ids=True,
                    max_tokens=self.arguments.max_tokens)

    def ask(self, question, variant):
        """(answer, seconds until it was there)"""
        begin = time.perf_counter()
        try:
            answer = self.server.fetch("/v1/chat/completions" if self.arguments.chat else "/v1/completions", self.body(question, variant))
        except ServerError as error:
            raise ServerError(f"line {question.line}, {variant.name}: {error}") from error
        return answer, time.perf_counter() - begin

    def fits(self, question):
        """Whether the model's context has room for the question and an answer. Says so once if not."""
        prompt = {"messages": [{"role": "user", "content": question.prompt}]} if self.arguments.chat else {"prompt": question.prompt}
        size = self.server.fetch("/tokenize", prompt)
        if size["count"] + self.arguments.max_tokens <= size["max_model_len"]:
            return True
        self.tell(f"line {question.line} is left out: {size['count']} tokens and {self.arguments.max_tokens} more exceed the context of "
                  f"{size['max_model_len']}")
        self.file.add({"kind": "left_out", "line": question.line, "tokens": size["count"]})
        return False

    def warm_up(self, question):
        """Every variant once: what the server refuses is known before anything is measured. Nothing is recorded."""
        for variant in self.variants:
            self.ask(question, variant)

    def measure(self):
        """All that is missing, block by block. A block has as many questions as requests are sent at a time."""
        size = self.arguments.parallel
        warm = False
        for begin in range(0, len(self.questions), size):
            block = [q for q in self.questions[begin:begin + size] if q.line not in self.left_out]
            missing = [(v, [q for q in block if (q.line, v.name) not in self.answered]) for v in self.variants]
            missing = [(variant, questions) for variant, questions in missing if questions]
            if not missing:
                continue
            fitting = {q.line for q in block if self.fits(q)}
            missing = [(v, [q for q in questions if q.line in fitting]) for v, questions in missing]
            if not fitting:
                continue
            if not warm:
                self.warm_up(next(q for q in block if q.line in fitting))
                warm = True
            self.tell(f"question {begin + 1} of {len(self.questions)}")
            # The first request of a prompt computes it and the others find it in the cache. That request is not one that counts.
            for question in (q for q in block if q.line in fitting):
                self.ask(question, self.variants[0])
            random.Random(begin).shuffle(missing)
            for variant, questions in missing:
                self.measure_block(variant, questions)

    def measure_block(self, variant, questions):
        """The questions at the same time. Each is charged an equal part of the time that all took."""
        answers = [None] * len(questions)

        def run(i):
            try:
                answers[i] = self.ask(questions[i], variant)
            except Exception as error:  # told by the thread that waits
                answers[i] = error

        begin = time.perf_counter()
        if len(questions) == 1:
            run(0)
        else:
            threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(questions))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        share = (time.perf_counter() - begin) / max(1, len(questions))
        for question, answer in zip(questions, answers):
            if isinstance(answer, Exception):
                raise answer
            self.file.add(record(self.task, question, variant, *answer, share))


def record(task, question, variant, answer, latency, share):
    """The record of an answer. `latency`: seconds of this request; `seconds`: its part of the time of its block."""
    choices = [dict(choice, text=choice["message"]["content"]) if "message" in choice else choice for choice in answer["choices"]]
    spec = answer["usage"]["speculation"]
    return dict(kind="answer", line=question.line, variant=variant.name, category=question.category,
                **tasks.score(task, question, choices, variant.setting.choose),
                latency=round(latency, 6), seconds=round(share, 6), beam_tokens=spec["beam_tokens"],
                completion_tokens=answer["usage"]["completion_tokens"], layers=spec["layers"], passes=spec["target_passes"],
                drafted=spec["drafted_nodes"], accepted=spec["accepted_nodes"], plain_rounds=spec["plain_rounds"],
                joules=answer["usage"].get("energy_joules"))
