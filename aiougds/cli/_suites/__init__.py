"""The experiments of the paper beside peers: ``aiougds bench --suite``."""

from __future__ import annotations
