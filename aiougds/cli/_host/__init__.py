"""What this machine has: NVMe functions, who uses them, which driver has them."""

from __future__ import annotations
