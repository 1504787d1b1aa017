"""Processes of several sides in one Spark are told apart by the group in their environment."""

from __future__ import annotations

import os

import pytest
from usage import GROUP, Usage


@pytest.mark.parametrize(
    ("group", "of_its_own", "of_another", "of_none"),
    [("alone", True, False, False), ("", False, False, True), (None, True, True, True)],
    ids=["a group", "no group", "all"],
)
def test_a_side_counts_its_own_processes(group: str | None, of_its_own: bool, of_another: bool, of_none: bool) -> None:
    usage = Usage() if group is None else Usage().of(group)
    environments = ([f"{GROUP}=alone".encode()], [b"A=b", f"{GROUP}=by hand".encode()], [b"A=b"])
    assert [usage._counts(os.getpid(), environ) for environ in environments] == [of_its_own, of_another, of_none]
