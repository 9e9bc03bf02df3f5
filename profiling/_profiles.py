"""The kernels of one capture, as the first scripts handed them around."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.records.profile import KernelProfile, Profile


class Profiles(list[KernelProfile]):
    """A list of kernels that remembers the capture they came from."""

    def __init__(self, capture: Profile, kernels: Sequence[KernelProfile] | None = None) -> None:
        super().__init__(capture.kernels if kernels is None else kernels)
        self.capture = capture
