"""Clicks of a shop's users, and a profile of each user, for `configs/clicks.yaml`.

One user has 40 % of the clicks. The reducer is plain Python and takes about 20 microseconds a click: it takes each
address apart, most of which nobody asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator, Reducer

_SECTIONS = ("books", "games", "garden", "kitchen", "music", "shoes", "sports", "toys")
_SOURCES = ("ad", "mail", "search", "wish%20list")
_TAGS = ("&size=XL%20%28wide%29&colour=dark%20blue", "&size=S&colour=light%20green%2Fgrey", "&size=42%C2%BD&colour=red")
_REST = "&currency=EUR&sort=price&dir=asc&view=grid&lang=en&page=3&campaign=summer%20sale%2C%20part%202"


class Clicks(Generator):
    """Clicks: `user` (0 is the one that clicks most) and `url`.

    Attributes:
        users: how many there are besides user 0, all alike.
        share: of the clicks, those of user 0.
    """

    def __init__(self, users: int = 100_000, share: float = 0.4) -> None:
        self.users = users
        self.share = share

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        others = random.integers(1, self.users + 1, rows)
        user = np.where(random.random(rows) < self.share, 0, others)
        section = pa.array(_SECTIONS).take(pa.array(random.integers(0, len(_SECTIONS), rows)))
        source = pa.array(_SOURCES).take(pa.array(random.integers(0, len(_SOURCES), rows)))
        tags = pa.array(_TAGS).take(pa.array(random.integers(0, len(_TAGS), rows)))
        item, price = (pa.array(random.integers(100, 100_000, rows)).cast(pa.string()) for _ in range(2))
        parts = ["https://shop.example/", section, "/", item, "?from=", source, "&price=", price, tags, _REST]
        return pa.record_batch({"user": user, "url": pc.binary_join_element_wise(*parts, "")})


@dataclass
class Profile:
    """What is known of a user: clicks, those that a mail led to, the prices seen in all, in cents, and the sections."""

    clicks: int = 0
    mail: int = 0
    cents: int = 0
    sections: set[str] = field(default_factory=set)


class Profiles(Reducer[Profile, str]):
    """Profiles of users, from the addresses that they clicked on."""

    def zero(self) -> Profile:
        return Profile()

    def reduce(self, state: Profile, value: str) -> Profile:
        address = urlsplit(value)
        asked = parse_qs(address.query)
        state.clicks += 1
        state.mail += asked["from"] == ["mail"]
        state.cents += int(asked["price"][0])
        state.sections.add(address.path.split("/")[1])
        return state

    def merge(self, left: Profile, right: Profile) -> Profile:
        sections = left.sections | right.sections
        return Profile(left.clicks + right.clicks, left.mail + right.mail, left.cents + right.cents, sections)

    def finish(self, state: Profile) -> dict[str, Any]:
        return {"clicks": state.clicks, "mail": state.mail, "cents": state.cents, "sections": len(state.sections)}
