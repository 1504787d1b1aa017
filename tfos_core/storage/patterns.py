"""Wildcards as Hadoop has them."""

from __future__ import annotations

import glob

__all__ = ("alternatives", "has_wildcards")


def has_wildcards(path: str) -> bool:
    """Whether a path may stand for several."""
    return glob.has_magic(path) or "{" in path


def alternatives(path: str) -> tuple[str, ...]:
    """Without braces: `part-{1,2}` is `part-1` and `part-2`. A brace that is never closed stands for itself.

    >>> alternatives("{a,b{1,2}}/x")
    ('a/x', 'b1/x', 'b2/x')
    """
    start = path.find("{")
    if start < 0:
        return (path,)
    depth, parts, begin = 0, [], start + 1
    for place in range(start, len(path)):
        letter = path[place]
        if letter == "{":
            depth += 1
        elif letter == "," and depth == 1:
            parts.append(path[begin:place])
            begin = place + 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                parts.append(path[begin:place])
                found = [path[:start] + part + path[place + 1 :] for part in parts]
                return tuple(dict.fromkeys(one for each in found for one in alternatives(each)))
    return (path,)
