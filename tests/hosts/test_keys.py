"""LMCache's keys as bytes: nothing of the identity is lost, nothing is confused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiougds.lmcache._keys import KeyFields, decode, encode

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KEYS = st.builds(
    KeyFields,
    st.binary(max_size=64),
    NAMES,
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    NAMES,
)


@given(KEYS)
def test_every_field_comes_back(key: KeyFields) -> None:
    assert decode(encode(key)) == key


@given(KEYS, KEYS)
def test_different_keys_are_different_bytes(one: KeyFields, other: KeyFields) -> None:
    assert (encode(one) == encode(other)) == (one == other)


@given(st.binary(max_size=80))
def test_what_is_no_key_is_none(data: bytes) -> None:
    fields = decode(data)
    assert fields is None or encode(fields) == data
