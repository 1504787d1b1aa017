"""Versions of Spark and TensorFlow that were tested together.

`tested_pairs.json` is the one source: `make test-matrix` writes it; `tfos env-check` and the table in docs/versions.md read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tfos_cli.envcheck.check import Check, Status
from tfos_cli.envcheck.versions import version_key

__all__ = ("FILE", "VersionPair", "known_pairs", "pairs_table", "version_checks", "with_pair", "write_pairs")

FILE = Path(__file__).with_name("tested_pairs.json")
_SHOWN = {
    "pyspark": "pyspark", "tensorflow": "TensorFlow", "python": "Python", "java": "Java", "keras": "Keras", "tf_keras": "tf_keras",
    "numpy": "NumPy", "pandas": "pandas", "pyarrow": "pyarrow", "protobuf": "protobuf", "tested": "tested",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPair:
    """The versions of one environment in which the tests passed; `tested` is the date, `name` that of the environment."""

    name: str
    pyspark: str
    tensorflow: str
    python: str
    java: str
    keras: str
    tf_keras: str
    numpy: str
    pandas: str
    pyarrow: str
    protobuf: str
    tested: str

    @property
    def minors(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What is compared: other last numbers are the same pair."""
        return (version_key(self.pyspark)[:2], version_key(self.tensorflow)[:2])


def known_pairs(file: Path = FILE) -> tuple[VersionPair, ...]:
    """The pairs, oldest first."""
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return tuple(sorted((VersionPair(**row) for row in rows), key=lambda pair: pair.minors))


def with_pair(pairs: Sequence[VersionPair], new: VersionPair) -> tuple[VersionPair, ...]:
    """The pairs with this one in the place of an earlier one of its name."""
    return tuple(sorted([pair for pair in pairs if pair.name != new.name] + [new], key=lambda pair: pair.minors))


def write_pairs(pairs: Sequence[VersionPair], file: Path = FILE) -> None:
    """Write the source."""
    file.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n", encoding="utf-8")


def pairs_table(pairs: Sequence[VersionPair]) -> str:
    """The table for the documentation; nothing while there are no pairs."""
    if not pairs:
        return ""
    columns = [field.name for field in fields(VersionPair) if field.name in _SHOWN]
    lines = [[_SHOWN[name] for name in columns], ["---"] * len(columns)]
    lines += [[getattr(pair, name) for name in columns] for pair in pairs]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def version_checks(pyspark: str, tensorflow: str, pairs: Sequence[VersionPair]) -> Iterator[Check]:
    """Whether Spark and TensorFlow were tested together; nothing when one of them is not known."""
    if not pyspark or not tensorflow or not pairs:
        return
    minors = (version_key(pyspark)[:2], version_key(tensorflow)[:2])
    found = f"pyspark {pyspark} with TensorFlow {tensorflow}"
    known = "; ".join(f"pyspark {pair.pyspark} with TensorFlow {pair.tensorflow}" for pair in pairs)
    fix = f"It may work, and nobody has tried. Tested: {known}."
    if minors in {pair.minors for pair in pairs}:
        yield Check(id="versions", status=Status.OK, found=f"{found} is tested")
        return
    outside = [
        f"{name} is {'newer' if have > max(tested) else 'older'}"
        for name, have, tested in zip(
            ("pyspark", "TensorFlow"), minors, zip(*(pair.minors for pair in pairs), strict=True), strict=True
        )
        if not min(tested) <= have <= max(tested)
    ]
    why = f"not tested: {' and '.join(outside)} than what is" if outside else "between the pairs that are tested"
    yield Check(id="versions", status=Status.WARNING, found=f"{found} is {why}", fix=fix)
