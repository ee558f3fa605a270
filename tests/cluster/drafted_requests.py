"""Requests whose answers are equal with and without drafts, for the tests of drafts in the worker's process and of heads."""
import re

from api_client import outcome
from stopwatch import wait_until

PROMPTS = ["Once upon a time, there was a big bear who did not like the rain.", "One day, Sara and her dad made a boat of paper."]
KINDS = {
    "multinomial": dict(decoding="multinomial", seed=11, temperature=0.9),
    "greedy": dict(decoding="multinomial", temperature=0),
    "beam sampling": dict(decoding="beam_sampling", beam_width=3, n=3, seed=12),
    "beam search": dict(decoding="beam_search", beam_width=3, n=3),
    "penalties": dict(decoding="multinomial", seed=13, frequency_penalty=0.5, presence_penalty=0.3, repetition_penalty=1.2),
    "format": dict(decoding="multinomial", seed=14, structured_outputs=dict(regex="(a|b|c|d){8,30}")),
}
DRAFTED = dict(speculative=dict(draft_width=4, draft_depth=3))


def bodies(simulated):
    """[(name, body)]; fewer and shorter ones for a simulated device."""
    return [(f"{kind}, prompt {i}", dict(fields, prompt=prompt, max_tokens=12 if simulated else 40, return_token_ids=True))
            for kind, fields in KINDS.items() for i, prompt in enumerate(PROMPTS[:1 if simulated else 2])]


def pool(blocks, state_columns=0):
    """Bytes of so many KV blocks of stories260k in f32, with states of bf16."""
    return 16 * (2 * 5 * 4 * 8 * 4 + 2 * state_columns) * blocks


def metric(cluster, name):
    """The sum over the series of a metric, and {labels: value}."""
    text = cluster.api.get("/metrics")[1]
    series = {labels: float(value) for labels, value in re.findall(rf"^coppice_{name}{{([^}}]*)}} (\S+)$", text, re.MULTILINE)}
    return sum(series.values()), series


def drafted(answer):
    return answer["usage"]["speculation"]["drafted_nodes"]


def preempted(test, cluster):
    """Answers to more requests than a pool of 60 blocks holds are those of each alone without drafts."""
    body = dict(decoding="beam_sampling", beam_width=3, n=3, ignore_eos=True, max_tokens=100, return_token_ids=True)
    bodies = [dict(body, seed=i, prompt=PROMPTS[i % 2]) for i in range(16)]
    plain = [outcome(cluster.api.complete(dict(body, speculative=False))) for body in bodies]
    for _ in range(20):  # on a busy machine requests come one after the other
        for _ in range(4):  # the coordinator expects the next answers to be as short as these
            cluster.api.complete_all([dict(body, stop=[" ", "e", "a"], ignore_eos=False) for body in bodies])
        answers = cluster.api.complete_all([dict(body, **DRAFTED) for body in bodies])
        test.assertEqual([outcome(answer) for answer in answers], plain)
        test.assertGreater(sum(drafted(answer) for answer in answers), 0)
        if wait_until(lambda: metric(cluster, "num_preemptions_total")[0] > 0, 1):
            return
    test.fail("no sequence was preempted")
