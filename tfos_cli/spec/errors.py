"""What is wrong with a spec: one `Problem` per mistake, and the `SpecError` that carries all of them.

ConfigError
`- SpecError      (file, line, field of the first problem; `problems` has all)
"""

from __future__ import annotations

from dataclasses import dataclass

from tfos_core.errors import ConfigError

__all__ = ("Problem", "SpecError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake: where it was made, the dotted field, a sentence, and what to do next.

    `where` is `FILE:LINE`, the name of an environment variable or a flag; `given` is empty where the value is not shown.
    """

    where: str
    message: str
    field: str = ""
    given: str = ""
    expected: str = ""
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class SpecError(ConfigError):
    """A spec can not be used; `problems` has every mistake that was found, in the order of the file."""

    def __init__(
        self,
        message: str = "",
        hint: str | None = None,
        file: str = "",
        line: int | None = None,
        field: str = "",
        problems: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, file, line, field, problems)
        self.file = file
        self.line = line
        self.field = field
        self.problems = problems

    @classmethod
    def of(cls, file: str, problems: tuple[Problem, ...]) -> SpecError:
        """The error of one or more problems of a spec file."""
        first = problems[0]
        if len(problems) == 1:
            message, hint = f"{first.where}: {first.message}", first.hint or None
        else:
            message = "\n".join([f"{file} has {len(problems)} errors:", *(f"  {problem}" for problem in problems)])
            hint = "`tfos schema` prints every key with its meaning; docs/spec.md has the same as a table."
        return cls(message, hint, file, first.line, first.field, problems)
