"""The profiles of a shop's users: what an address says, and that states can be merged."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from dpa.testing import check_reducer_laws
from jobs.clicks import Clicks, Profiles

SHOES = "https://shop.example/shoes/17?from=mail&price=250&size=42%C2%BD"
TOYS = "https://shop.example/toys/4?from=ad&price=1000"


def test_a_profile_counts_clicks_mails_prices_and_sections() -> None:
    profiles = Profiles()
    found = profiles.finish(reduce(profiles.reduce, [SHOES, TOYS, SHOES], profiles.zero()))
    assert found == {"clicks": 3, "mail": 2, "cents": 1500, "sections": 2}


def test_profiles_keep_the_laws_of_reducers() -> None:
    urls = Clicks().batch(0, 40, np.random.default_rng(0))["url"].to_pylist()
    check_reducer_laws(Profiles(), urls)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_one_user_has_a_share_of_the_clicks_and_every_address_can_be_read(share: float) -> None:
    batch = Clicks(users=50, share=share).batch(0, 4_000, np.random.default_rng(1))
    users = batch["user"].to_pylist()
    assert users.count(0) / len(users) == pytest.approx(share, abs=0.03)
    assert set(users) <= set(range(51))
    profiles = Profiles()
    found = profiles.finish(reduce(profiles.reduce, batch["url"].to_pylist(), profiles.zero()))
    assert (found["clicks"], found["sections"]) == (4_000, 8)
    assert found["mail"] / 4_000 == pytest.approx(0.25, abs=0.03)
