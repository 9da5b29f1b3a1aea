"""The conformance list, with kernel 6.1 and no IOMMU."""

from __future__ import annotations

from vm.checks.conformance import checks_for

CHECKS = checks_for("6.1", False, __name__)
