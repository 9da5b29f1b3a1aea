"""What has to hold on a machine for a real drive to be used, each with its fix."""

from __future__ import annotations
