from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.errors import ProtocolError
from tfos_core.reservation import conceal, reveal

SECRET = bytes(range(32))


@given(values=st.dictionaries(st.text(), st.text(), max_size=4))
def test_values_come_back_and_are_not_to_be_seen(values: dict[str, str]) -> None:
    message = json.loads(json.dumps(conceal(SECRET, values)))
    assert reveal(SECRET, message) == values
    assert len(message["concealed"]) % 512 == 0


def test_the_same_values_look_different_each_time_and_nothing_of_them_shows() -> None:
    values = {"API_TOKEN": "hidden-one"}
    first, second = conceal(SECRET, values), conceal(SECRET, values)
    assert first["concealed"] != second["concealed"]
    for message in (first, second):
        assert b"hidden" not in bytes.fromhex(message["concealed"])
        assert b"API_TOKEN" not in bytes.fromhex(message["concealed"])
    assert len(first["concealed"]) == len(conceal(SECRET, {"API_TOKEN": "short"})["concealed"])


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"values": {"A": "b"}},
        {"nonce": "00", "concealed": "zz"},
        {"nonce": 1, "concealed": 2},
        {"nonce": "00" * 32, "concealed": "00" * 256},
        {"nonce": "00" * 32, "concealed": ""},
        conceal(bytes(32), {"A": "b"}),
    ],
    ids=str,
)
def test_what_was_not_concealed_with_this_secret_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ProtocolError, match="not concealed with the secret"):
        reveal(SECRET, message)
