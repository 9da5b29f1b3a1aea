"""LMCache's object keys as bytes, and back: the store's keys, kept on the device.

    b"\x01" | kv_rank: 8 bytes | object_group_id: 4 | length of the hash: 1
            | length of the model name: 2 | hash | model name, UTF-8 | cache salt, UTF-8

All five fields are the identity, so that no two keys are the same bytes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Protocol

_HEAD: Final = struct.Struct("<BQIBH")
_FORMAT: Final = 1


class ObjectKey(Protocol):
    """What is used of LMCache's own class."""

    @property
    def chunk_hash(self) -> bytes: ...
    @property
    def model_name(self) -> str: ...
    @property
    def kv_rank(self) -> int: ...
    @property
    def object_group_id(self) -> int: ...
    @property
    def cache_salt(self) -> str: ...
    def __hash__(self) -> int: ...


class KeyFields(NamedTuple):
    """The fields, in the order of LMCache's constructor."""

    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int
    cache_salt: str


def encode(key: ObjectKey) -> bytes:
    """Return the key of the store."""
    digest, model = key.chunk_hash, key.model_name.encode()
    lengths = len(digest), len(model)
    head = _HEAD.pack(_FORMAT, key.kv_rank, key.object_group_id, *lengths)
    return head + digest + model + key.cache_salt.encode()


def decode(data: bytes) -> KeyFields | None:
    """Return the fields; None: it is no key of LMCache's."""
    if len(data) < _HEAD.size:
        return None
    kind, rank, group, of_hash, of_model = _HEAD.unpack_from(data)
    names = data[_HEAD.size + of_hash :]
    if kind != _FORMAT or len(names) < of_model:
        return None
    try:
        model, salt = names[:of_model].decode(), names[of_model:].decode()
    except UnicodeDecodeError:
        return None
    digest = data[_HEAD.size : _HEAD.size + of_hash]
    return KeyFields(digest, model, rank, group, salt)
