"""Job specs that somebody clumsy or hostile wrote: good ones with keys, values or single characters changed."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed.commandline import Outcome
from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.problems import model_in

__all__ = ("OddSpecs",)

Keys = tuple[str | int, ...]

_ODD: tuple[Any, ...] = (
    None, True, -1, 0, float("inf"), float("nan"), 10**30, "", "x" * 5000, "\u202e\x00x", "~", "~root/x", "~nobody", "/dev/null",
    "/",
    "../../..", "a:b:c", "#", "x#../../y", "é\u4e2d\U0001f600", "[", "*", "**", "{a}", "$(id)", "`id`", "--class", "-", "\n",
    "a\nb",
    "s3://u:p@h/x", "file://x/y", "file:", "hdfs://", "k8s://", "spark://", "spark://:1,", "local-cluster[9999999999999,1,1]",
    "local[*]", [], {}, [[]], [None], {"": ""}, {"a": {"b": [1]}}, "999999999t", "0g", "a.py:", "a.py:f.g:h", "x.y.z:1", "\ud800",
    "http://[::1", "//",
)  # fmt: skip
_CHARACTERS = "&*!{}[]:#\t\n\"'|>%@`-\x00\x85\ufeff\u2028é "
_LINES = (["validate"], ["validate", "--json"], ["train", "--dry-run"], ["train", "--dry-run", "--json"], ["infer", "--dry-run"])


class OddSpecs:
    """An endless supply, always the same from the same generator of random numbers."""

    def __init__(self, generator: random.Random, jobspecs: Path) -> None:
        self._random = generator
        self._folder = jobspecs
        self._texts = [path.read_text() for path in sorted(jobspecs.glob("*.yaml"))]
        self._keys = list(_keys(JobSpec))

    def try_one(self, folder: Path, run: Callable[..., Outcome]) -> str:
        """Try one spec with one command; what went wrong, or nothing."""
        if not (folder / "apps").exists():
            shutil.copytree(self._folder / "apps", folder / "apps")
        content = self._text().encode("utf-8", "surrogatepass")
        (folder / "job.yaml").write_bytes(content)
        verb, *flags = self._random.choice(_LINES)
        line = ["tfos", verb, "job.yaml", *flags, *self._overrides()]
        environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "TFOS_HOME": str(folder / "home")}
        outcome = run(line, environment=environment, folder=folder)
        said = outcome.stdout + outcome.stderr
        if outcome.exit_code in (0, 2, 3) and "Traceback" not in said and "defect of tfos" not in said:
            return ""
        return f"{line} exited {outcome.exit_code}\n{said[-2000:]}\n{content!r}"

    def _text(self) -> str:
        text = self._random.choice(self._texts)
        if self._random.random() < 0.25:
            return self._damaged(text)
        document = yaml.safe_load(text)
        for _ in range(self._random.randint(1, 4)):
            path: Keys = self._random.choice(self._keys if self._random.random() < 0.6 else list(_paths(document)))
            document = _put(document, path, self._odd())
        return json.dumps(document, ensure_ascii=self._random.random() < 0.5)

    def _damaged(self, text: str) -> str:
        letters = list(text)
        for _ in range(self._random.randint(1, 6)):
            at, how = self._random.randrange(len(letters)), self._random.random()
            if how < 0.4:
                letters[at] = self._random.choice(_CHARACTERS)
            elif how < 0.7:
                del letters[at]
            else:
                letters[at:at] = letters[self._random.randrange(len(letters)) :][:30]
        return "".join(letters)

    def _overrides(self) -> Iterator[str]:
        for _ in range(self._random.choice([0, 0, 0, 1, 2])):
            value = self._odd()
            key = ".".join(map(str, self._random.choice(self._keys))) + self._random.choice(["", "", ".x", ".0", "..", "."])
            yield from ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")

    def _odd(self) -> Any:
        return copy.deepcopy(self._random.choice(_ODD))


def _keys(model: type[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        yield (*path, name)
        inner = model_in(info.annotation)
        if inner is not None:
            yield from _keys(inner, (*path, name))


def _paths(value: Any, path: Keys = ()) -> Iterator[Keys]:
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield from _paths(item, (*path, key))


def _put(document: Any, path: Keys, value: Any) -> Any:
    """The document with a value at a path, where the path leads to something."""
    if not path:
        return value
    here = document
    for key in path[:-1]:
        if isinstance(here, dict):
            inner = here.get(key)
            if not isinstance(inner, dict | list):
                inner = here[key] = {}
        elif isinstance(here, list) and isinstance(key, int) and key < len(here) and isinstance(here[key], dict | list):
            inner = here[key]
        else:
            return document
        here = inner
    last = path[-1]
    if isinstance(here, dict) or (isinstance(here, list) and isinstance(last, int) and last < len(here)):
        here[last] = value
    return document
