"""A matrix peak is the best of tries that each follow a pause: a card under its power cap slows
products that follow others, and a peak is what it can reach."""

from __future__ import annotations

import pytest

from kernel_compass.measurement import calibration_run
from kernel_compass.measurement.calibration_run import FORMATS, FULL, PEAK_PAUSE_S, QUICK, _Run
from kernel_compass.measurement.probes import Product
from kernel_compass.measurement.simulated import SimulatedDevice
from kernel_compass.measurement.subject import Subject
from kernel_compass.records.calibration import Basis

FAST_US, SLOW_US = 100.0, 115.0
PEAK_TRIES = FULL.peak_tries


class Card:
    """A simulated GPU whose products take another time after each pause."""

    def __init__(self, tries_us, monkeypatch, noise=0.0, lacks=()):
        self.device = SimulatedDevice(launch_us=0.0, noise=noise)
        self.tries_us, self.lacks = tries_us, lacks
        self.pauses, self.told = [], []
        self.now_us = None
        """None: nothing was timed in peace; a product launched then is an error."""
        monkeypatch.setattr(calibration_run, "sleep", self.pause)
        monkeypatch.setattr(calibration_run, "products", self.products)

    def pause(self, seconds):
        self.now_us = self.tries_us[len(self.pauses) % len(self.tries_us)]
        self.pauses.append(seconds)

    def products(self, device, formats, size):
        assert device is self.device
        product = Subject(lambda: self.device.launch(extra_us=self.now_us))
        return [Product(name, product, 2 * size**3) for name in formats if name not in self.lacks]

    def peaks(self, quick=False):
        return _Run(self.device, quick, self.told.append)._peaks()


@pytest.mark.parametrize("best", range(PEAK_TRIES))
def test_the_best_try_counts_wherever_it_is(best, monkeypatch):
    tries_us = [SLOW_US + i for i in range(PEAK_TRIES)]
    tries_us[best] = FAST_US
    card = Card(tries_us, monkeypatch)
    found = card.peaks()
    assert tuple(found) == FORMATS
    for peak in found.values():
        assert peak.basis is Basis.MEASURED
        assert peak.value == pytest.approx(2 * 8192**3 / (FAST_US * 1e6))
        assert "8192 x 8192 x 8192" in peak.source


def test_every_try_follows_a_pause(monkeypatch):
    card = Card([SLOW_US] * PEAK_TRIES, monkeypatch)
    assert card.peaks()["bf16"].value == pytest.approx(2 * 8192**3 / (SLOW_US * 1e6))
    assert PEAK_TRIES > 1
    assert PEAK_PAUSE_S > 0
    assert card.pauses == [PEAK_PAUSE_S] * PEAK_TRIES * len(FORMATS)


def test_of_the_best_try_the_faster_quartile_counts_and_its_slower_one_is_kept(monkeypatch):
    card = Card([SLOW_US, FAST_US, SLOW_US], monkeypatch, noise=0.004)
    for peak in card.peaks().values():
        assert peak.low < peak.high == peak.value
        # Neither quartile is that of a slow try, 15 % away.
        assert peak.low == pytest.approx(2 * 8192**3 / (FAST_US * 1e6), rel=0.05)


def test_a_product_that_the_card_lacks_is_absent_and_waits_for_nothing(monkeypatch):
    card = Card([FAST_US], monkeypatch, lacks=("fp8",))
    found = card.peaks()
    assert (found["fp8"].value, found["fp8"].basis) == (None, Basis.ABSENT)
    assert "no such product" in found["fp8"].source
    assert all(found[name].value for name in FORMATS if name != "fp8")
    assert len(card.pauses) == PEAK_TRIES * (len(FORMATS) - 1)
    assert [told.part for told in card.told] == [f"{name} matrix product" for name in FORMATS]


def test_a_quick_look_tries_once_after_a_pause(monkeypatch):
    card = Card([SLOW_US, FAST_US], monkeypatch)
    card.peaks(quick=True)
    assert QUICK.peak_tries == 1
    assert card.pauses == [PEAK_PAUSE_S] * len(FORMATS)
