"""The conformance list, with kernel 6.12 and an IOMMU."""

from __future__ import annotations

from vm.checks.conformance import checks_for

CHECKS = checks_for("6.12", True, __name__)
