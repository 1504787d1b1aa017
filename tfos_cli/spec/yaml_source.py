"""YAML text to plain values that remember their lines. Knows YAML, not the keys of a spec.

Scalars follow the core schema of YAML 1.2: only true/false are booleans (`no`, `on` are text), `1e-3` is a number, `010` is ten and
`12:30` is text. PyYAML's own YAML 1.1 rules turn learning rates into text and country codes into booleans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner

__all__ = ("MOST_BYTES", "Located", "YamlProblem", "is_usable", "parse_yaml")

MOST_BYTES = 1 << 20
MOST_VALUES = 20_000
MOST_DEPTH = 40
MOST_PROBLEMS = 100

_STR, _NULL, _BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("str", "null", "bool", "int", "float"))
_PLAIN_SCALARS = (
    (_NULL, re.compile(r"(?:~|null|Null|NULL|)\Z")),
    (_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")),
    (_INT, re.compile(r"(?:[-+]?[0-9]{1,300}|0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300})\Z")),
    (
        _FLOAT,
        re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"),
    ),
)
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


class YamlProblem(Exception):  # noqa: N818 - never leaves the package: the loader makes a SpecError of it
    """One thing that is wrong with the text; `line` counts from 1, `path` leads to the value."""

    def __init__(self, message: str, line: int | None = None, path: tuple[str | int, ...] = (), hint: str = "") -> None:
        super().__init__(message, line, path, hint)
        self.message = message
        self.line = line
        self.path = path
        self.hint = hint


@dataclass(slots=True, kw_only=True)
class Located:
    """A value with the line where it stands; `text` is a scalar as it was written."""

    value: bool | int | float | str | dict[str, Located] | list[Located] | None
    line: int
    text: str = ""


class _Loader(Reader, Scanner, Parser, Composer, Resolver):
    """Composes nodes; refuses tags, which could name Python types."""

    def __init__(self, stream: str) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        Resolver.__init__(self)
        self._nodes = 0

    def compose_node(self, parent: Node | None, index: object) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._nodes += 1
        if self._nodes > 2 * MOST_VALUES:  # keys are nodes as well
            raise YamlProblem(f"the document has more than {MOST_VALUES} values", event.start_mark.line + 1)
        tag = getattr(event, "tag", None)
        if tag is not None:
            hint = "Remove it, or quote a text that starts with '!'."
            raise YamlProblem("tags ('!name') are not accepted in a spec", event.start_mark.line + 1, (), hint)
        return super().compose_node(parent, index)  # type: ignore[arg-type]

    def resolve(self, kind: type[Node], value: str | None, implicit: object) -> str:
        if kind is ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            for tag, pattern in _PLAIN_SCALARS:
                if pattern.match(value or ""):
                    return tag
        return _STR


def parse_yaml(text: str) -> tuple[Located, tuple[YamlProblem, ...]]:
    """The values of one YAML document, and what is wrong with keys and values that could still be told apart.

    Raises:
        YamlProblem: the text is not YAML at all, or too large, or has tags.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)  # type: ignore[arg-type]
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        # Without words of the text, as in "undefined alias 'x'": a password may start with a character that means something.
        detail = re.sub(r" '[^'<][^']+'", "", ", ".join(part for part in (exc.context, exc.problem) if part))
        raise YamlProblem(f"this is not YAML: {detail}", mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise YamlProblem(f"this is not YAML: the character U+{exc.character:04X} is not allowed", line) from None
    except RecursionError:
        raise YamlProblem(f"the values are nested more than {MOST_DEPTH} deep") from None
    if node is None:
        return Located(value=None, line=1), ()
    builder = _Builder()
    located = builder.build(node, (), 0)
    return located, tuple(builder.problems)


def is_usable(text: str) -> bool:
    """Whether a text can be an argument, a variable and a line of output: no NUL, no half of a surrogate pair."""
    return _UNUSABLE.search(text) is None


class _Builder:
    """Turns nodes into `Located`, counting values so that a few aliases can not stand for millions of them."""

    def __init__(self) -> None:
        self.problems: list[YamlProblem] = []
        self._count = 0

    def build(self, node: Node, path: tuple[str | int, ...], depth: int) -> Located:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MOST_VALUES:
            raise YamlProblem(f"the document has more than {MOST_VALUES} values, aliases counted each time", line)
        if depth > MOST_DEPTH:
            raise YamlProblem(f"the values are nested more than {MOST_DEPTH} deep", line)
        if isinstance(node, MappingNode):
            return Located(value=dict(self._entries(node, path, depth)), line=line)
        if isinstance(node, SequenceNode):
            items = [self.build(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
            return Located(value=items, line=line)
        return self._scalar(node, path, line)

    def _entries(self, node: MappingNode, path: tuple[str | int, ...], depth: int) -> Iterator[tuple[str, Located]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._tell("a key must be text, not a list or a mapping", line, path)
                continue
            key = key_node.value
            if key == "<<":
                self._tell("merge keys ('<<') are not accepted in a spec", line, path, "Write the keys out.")
                continue
            if key in seen:
                first = seen[key]
                self._tell(f"the key appears twice, first in line {first}", line, (*path, key), "Keep one of them.")
                continue
            seen[key] = line
            located = self.build(value_node, (*path, key), depth + 1)
            # The line of the key: an aliased value, or one on the next line, stands elsewhere.
            yield key, Located(value=located.value, line=line, text=located.text)

    def _tell(self, message: str, line: int, path: tuple[str | int, ...], hint: str = "") -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(YamlProblem(message, line, path, hint))

    def _scalar(self, node: Node, path: tuple[str | int, ...], line: int) -> Located:
        text = str(node.value)
        if not is_usable(text):
            self._tell("the text has a NUL or a half of a surrogate pair", line, path, "Remove the escape.")
            text = ""
        return Located(value=_scalar_value(node.tag, text), line=line, text=text)


def _scalar_value(tag: str, text: str) -> bool | int | float | str | None:
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() == "true"
    if tag == _INT:
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if tag == _FLOAT:
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
