#!/usr/bin/env python3
"""Compares the engine of chat templates with Jinja2, byte for byte, over templates and chats.

  pip install jinja2
  tests/tokenizer/chat_template/differential.py PROGRAM [FILE or FOLDER ...] [--table]

PROGRAM: chat_template_render of the build. FILE, FOLDER: templates (*.jinja), by default those of the tree. Each is rendered with
each of CHATS as Transformers would: tools, documents and the special tokens are always there. --table prints a line for each
template. Exit status 1 if a template does not start that Jinja2 compiles, or an outcome differs.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

os.environ["TZ"] = "UTC"
import jinja2  # noqa: E402

from make_chat_fixtures import FAMILIES, FIXTURES, NOW, TOOL, environment, outcome_of  # noqa: E402

SYSTEM = {"role": "system", "content": "Answer in \"verse\".\n\nBe 'brief'."}
HELLO = {"role": "user", "content": "Hello, \u00e9t\u00e9 \U0001f333 & <b>\n"}
REPLY = {"role": "assistant", "content": "<think>\nA forest?\n</think>\n\nTrees."}
MORE = {"role": "user", "content": "  More trees? "}
TOOL2 = {"type": "function", "function": {"name": "measure", "description": "Measures.\nIn metres.", "parameters": {
    "type": "object", "properties": {
        "what": {"type": "string", "enum": ["oak", "fir"], "description": "Which \u00e9"},
        "list": {"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
        "map": {"type": "object", "properties": {"deep": {"type": ["string", "null"]}}, "additionalProperties": False},
        "any": {"anyOf": [{"type": "number"}, {"type": "null"}], "maximum": 1.5e20, "nullable": True}},
    "required": ["what"]}, "strict": True}}


def call(index, arguments, name="measure"):
    return {"id": f"call{index:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*arguments, content=None, **fields):
    made = {"role": "assistant"} if content is None else {"role": "assistant", "content": content}
    return dict(made, tool_calls=[call(i + 1, one) for i, one in enumerate(arguments)], **fields)


def result(index, content, **fields):
    return dict({"role": "tool", "tool_call_id": f"call{index:05d}", "content": content}, **fields)


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


ARGUMENTS = {"what": "oak \u00e9", "list": [1, 2.5], "map": {"deep": None}, "any": True}
MESSAGES = {
    "user": [HELLO],
    "system": [SYSTEM, HELLO],
    "turns": [SYSTEM, HELLO, REPLY, MORE],
    "turns without system": [HELLO, REPLY, MORE, REPLY, HELLO],
    "ends with assistant": [SYSTEM, HELLO, REPLY],
    "twice user": [HELLO, MORE],
    "empty": [{"role": "user", "content": ""}],
    "developer": [{"role": "developer", "content": "Rules."}, HELLO],
    "parts": [{"role": "system", "content": parts("Nice.")}, {"role": "user", "content": parts("a ", "b")},
              {"role": "assistant", "content": parts("c")}, {"role": "user", "content": parts("d")}],
    "names": [dict(SYSTEM, name="rules"), dict(HELLO, name="ann"), dict(REPLY, name="bot"), MORE],
    "reasoning": [HELLO, dict(REPLY, content="Trees.", reasoning_content="Hm.\n", thinking="Hm.\n"), MORE],
    "call": [HELLO, calls(ARGUMENTS), result(1, "12")],
    "call with text": [SYSTEM, HELLO, calls(ARGUMENTS, content="I measure."), result(1, "{\"height\": 12}", name="measure"),
                       {"role": "assistant", "content": "12 metres."}, MORE],
    "call with empty text": [SYSTEM, HELLO, calls(ARGUMENTS, content=""), result(1, "12"), REPLY, MORE],
    "call as text": [SYSTEM, HELLO, calls(json.dumps(ARGUMENTS), content=""), result(1, "12")],
    "two calls": [HELLO, calls(ARGUMENTS, {}, content="", reasoning_content="Both.", thinking="Both."),
                  result(1, "12"), result(2, "no \"tree\""), {"role": "assistant", "content": "Done."}, MORE],
    "result in parts": [HELLO, calls({}, content=""), result(1, parts("1", "2"))],
}
DOCUMENTS = [{"title": "Oak", "text": "Oaks are \"old\".\n"}, {"title": "Fir", "text": "", "doc_id": 2}]
EXTRA = {
    "": {},
    "tools": {"tools": [TOOL, TOOL2]},
    "no tools": {"tools": []},
    "documents": {"documents": DOCUMENTS},
    "thinking": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "not thinking": {"enable_thinking": False, "thinking": False, "add_generation_prompt": False},
    "tools, not thinking": {"tools": [TOOL2], "enable_thinking": False, "add_generation_prompt": False,
                            "tools_in_user_message": False, "date_string": "1 Jan 2030"},
}
BASE = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
        "unk_token": "<unk>", "pad_token": "<pad>"}
CHATS = [(f"{chat}; {extra}".rstrip("; "), {**BASE, "messages": messages, **given})
         for chat, messages in MESSAGES.items() for extra, given in EXTRA.items()]


def served(program, sources):
    """What the program gives for each template."""
    lines = [json.dumps({"template": source, "now": NOW, "variables": [chat for _, chat in CHATS]}) for source in sources]
    done = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def same(wanted, given):
    if "fails" in wanted:
        return "fails" in given
    return wanted == given


def compare(source, given):
    """(Jinja2 compiles it, it starts here, outcomes that are equal, the differences as text)."""
    try:
        template = environment().from_string(source)
    except jinja2.TemplateError:
        return False, "refused" not in given, 0, []
    if "refused" in given:
        return True, False, 0, ["does not start: " + given["refused"]]
    equal, different = 0, []
    for (name, chat), here in zip(CHATS, given["outcomes"]):
        wanted = outcome_of(template, chat)
        if same(wanted, here):
            equal += 1
        else:
            different.append(f"[{name}]\n  jinja2: {json.dumps(wanted)[-700:]}\n  here:   {json.dumps(here)[-700:]}")
    return True, True, equal, different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("paths", nargs="*", type=pathlib.Path, default=[FAMILIES, FIXTURES / "templates"])
    parser.add_argument("--table", action="store_true", help="a line for each template")
    parser.add_argument("--most", type=int, default=1, help="differences that are shown of a template")
    args = parser.parse_intermixed_args()
    paths = [file for path in args.paths for file in (sorted(path.rglob("*.jinja")) if path.is_dir() else [path])]
    sources = [path.read_text() for path in paths]
    started = equal_templates = compiled = 0
    for path, source, given in zip(paths, sources, served(args.program, sources)):
        compiles, starts, equal, different = compare(source, given)
        compiled += compiles
        started += compiles and starts
        equal_templates += compiles and not different
        if args.table:
            print(f"{'starts' if starts else 'refused'}  {equal:4d}/{len(CHATS)}  {'' if compiles else 'not for Jinja2  '}{path}")
        for text in different[:args.most]:
            print(f"{path}: {len(different)} differ: {text}")
    print(f"{len(paths)} templates, {compiled} that Jinja2 compiles: {started} start, {equal_templates} are equal in each of "
          f"{len(CHATS)} chats")
    sys.exit(equal_templates != compiled)


if __name__ == "__main__":
    main()
