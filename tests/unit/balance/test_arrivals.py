"""What is known of the keys to come: precise where keys stay, quick where they drift, modest where they come and go."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dpa.balance.adaptive._arrivals import Arrivals, has_changed
from dpa.measure.load import KeySample, Offered
from dpa.routing.hashing import hash_column

LOOK_SECONDS = 0.25
KEYS = 200
HASHES = hash_column(pa.array([f"key {number}" for number in range(KEYS)]))
TOKENS = 256
"""Of a table of four reducers."""

ROWS = 1_500
"""Records that are looked at between two looks."""

Shares = npt.NDArray[np.float64]


def zipf(exponent: float) -> Shares:
    shares = np.arange(1.0, KEYS + 1) ** -exponent
    return shares / shares.sum()


def with_hot(key: int, share: float) -> Shares:
    """One key with this share, the others even."""
    shares = np.full(KEYS, (1 - share) / (KEYS - 1))
    shares[key] = share
    return shares


def drawn(shares: Shares, random: np.random.Generator, rows: int = ROWS, total: float | None = None) -> KeySample:
    """What looking at `rows` records of such a stream finds, of `total` in all."""
    counts = random.multinomial(rows, shares)
    some = np.flatnonzero(counts)
    some = some[np.argsort(HASHES[some])]
    found = KeySample(HASHES[some], counts[some].astype(float), rows)
    return found if total is None else found.scaled(total)


def look(arrivals: Arrivals, sample: KeySample, sender: int = 0) -> Arrivals:
    """A sender reports this sample, and all of it is looked at."""
    names = {int(hashed): f"name of {hashed}" for hashed in sample.hashes}
    arrivals.add(sender, Offered(LOOK_SECONDS, sample, names))
    arrivals.look()
    return arrivals


def share_of(key: int, sample: KeySample) -> float:
    """The part of the records that a key has."""
    return float(sample.records[sample.hashes == HASHES[key]].sum()) / sample.total


# --- keys that stay


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("rows", [60, 1_500], ids=["few records a look", "many"])
def test_the_keys_of_a_stationary_stream_never_change(exponent: float, seed: int, rows: int) -> None:
    random, arrivals = np.random.default_rng(seed), Arrivals(TOKENS)
    for _ in range(200):
        look(arrivals, drawn(zipf(exponent), random, rows))
    assert arrivals.changes == 0
    assert arrivals.is_steady


@pytest.mark.parametrize("tokens", [1, 2, 8, 16])
def test_the_keys_of_a_stationary_stream_never_change_where_tokens_are_few(tokens: int) -> None:
    random = np.random.default_rng(0)
    hashes = np.sort(random.choice(2**32, 2_000, replace=False).astype(np.uint32))
    shares = 1 / np.arange(1.0, len(hashes) + 1)
    arrivals = Arrivals(tokens)
    for _ in range(40):
        counts = random.multinomial(ROWS, shares / shares.sum())
        look(arrivals, KeySample(hashes[counts > 0], counts[counts > 0].astype(float), ROWS))
    assert arrivals.changes == 0


def test_the_longer_keys_stay_the_better_they_are_known() -> None:
    random, arrivals, shares = np.random.default_rng(0), Arrivals(TOKENS), zipf(1.0)
    errors, rests_on = [], []
    for _ in range(40):
        look(arrivals, drawn(shares, random))
        errors.append(abs(share_of(0, arrivals.sample) - shares[0]))
        rests_on.append(arrivals.sample.rows)
    assert np.mean(errors[20:]) < 0.5 * np.std([share_of(0, drawn(shares, random)) for _ in range(40)])
    assert rests_on[-1] > 5 * rests_on[0]


def test_looks_without_news_change_nothing() -> None:
    arrivals = look(Arrivals(TOKENS), drawn(zipf(1.0), np.random.default_rng(0)))
    before = arrivals.sample
    for _ in range(10):
        arrivals.look()
    assert (arrivals.sample, arrivals.changes) == (before, 0)


def test_of_nothing_nothing_is_expected() -> None:
    arrivals = Arrivals(TOKENS)
    arrivals.look()
    assert (arrivals.sample.total, arrivals.rate, arrivals.names) == (0.0, 0.0, {})


# --- keys that drift


@pytest.mark.parametrize("seed", range(5))
def test_a_hot_key_that_drifts_is_seen_at_the_next_look(seed: int) -> None:
    random, arrivals = np.random.default_rng(seed), Arrivals(TOKENS)
    for key in range(5):
        for _ in range(8):
            look(arrivals, drawn(with_hot(key, 0.6), random))
            assert share_of(key, arrivals.sample) == pytest.approx(0.6, abs=0.1)
            assert share_of(key - 1, arrivals.sample) < 0.1
    assert arrivals.changes == 4
    assert arrivals.is_steady


# --- keys that come and go


def sorted_looks(looks: int, hot: float = 0.0, seed: int = 0) -> list[KeySample]:
    """Sorted input: four of the keys, which are new, come between two looks; and a hot one with a share throughout."""
    random = np.random.default_rng(seed)
    made = []
    for at in range(looks):
        shares = np.zeros(KEYS)
        shares[[(1 + 4 * at + one) % KEYS for one in range(4)]] = (1 - hot) / 4
        shares[0] += hot
        made.append(drawn(shares / shares.sum(), random))
    return made


def test_sorted_input_is_unsteady_and_what_comes_next_is_expected_evenly() -> None:
    arrivals = Arrivals(TOKENS)
    for sample in sorted_looks(20):
        look(arrivals, sample)
    assert not arrivals.is_steady
    quarters = np.bincount((arrivals.sample.hashes >> np.uint32(30)), arrivals.sample.records, 4)
    assert quarters / quarters.sum() == pytest.approx([0.25] * 4, abs=0.1)


def test_a_hot_key_that_persists_in_sorted_input_is_kept() -> None:
    arrivals = Arrivals(TOKENS)
    for sample in sorted_looks(20, hot=0.4):
        look(arrivals, sample)
    assert not arrivals.is_steady
    assert share_of(0, arrivals.sample) == pytest.approx(0.4, abs=0.1)


def test_after_sorted_input_keys_that_stay_are_believed_again() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for sample in sorted_looks(6):
        look(arrivals, sample)
    for key in range(12):
        for _ in range(5):
            look(arrivals, drawn(with_hot(key, 0.6), random))
    assert arrivals.is_steady
    assert share_of(11, arrivals.sample) == pytest.approx(0.6, abs=0.1)


# --- change by chance


def test_so_few_records_may_differ_by_chance() -> None:
    random = np.random.default_rng(0)
    pairs = [(drawn(zipf(1.0), random, 12), drawn(zipf(1.0), random, 12)) for _ in range(200)]
    assert not any(has_changed(one, other) for one, other in pairs)


@pytest.mark.parametrize("share", [0.03, 0.05])
def test_a_certain_but_small_change_does_not_matter(share: float) -> None:
    random = np.random.default_rng(0)
    many = 1_000_000
    assert not has_changed(drawn(zipf(0.0), random, many), drawn(with_hot(0, share), random, many))


# --- rates, senders, names


def test_the_rate_is_that_of_all_senders() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for _ in range(20):
        for sender, rate in enumerate((1_000.0, 3_000.0)):
            arrivals.add(sender, Offered(LOOK_SECONDS, drawn(zipf(1.0), random, total=rate * LOOK_SECONDS)))
    assert arrivals.rate == pytest.approx(4_000.0)


def test_a_rate_follows_within_a_second_or_two() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for rate in [1_000.0] * 40 + [5_000.0] * 8:
        arrivals.add(0, Offered(LOOK_SECONDS, drawn(zipf(1.0), random, total=rate * LOOK_SECONDS)))
    assert arrivals.rate == pytest.approx(5_000.0, rel=0.15)


def test_blocks_that_fill_the_queues_at_once_say_little_of_a_rate() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for seconds, total in ((1e-5, 100.0), (LOOK_SECONDS, 250.0)):
        arrivals.add(0, Offered(seconds, drawn(zipf(1.0), random, total=total)))
        assert arrivals.rate < 1_500.0


def test_a_sender_that_ended_counts_no_more() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for sender in (0, 1):
        arrivals.add(sender, Offered(1.0, drawn(zipf(1.0), random, total=1_000.0)))
    arrivals.add(0, Offered(0.1, drawn(zipf(1.0), random, total=100.0), ended=True))
    assert arrivals.rate == pytest.approx(1_000.0)
    arrivals.add(1, Offered(0.1, KeySample.empty(), ended=True))
    assert arrivals.rate == 0.0


def test_a_sender_that_is_held_back_offers_less() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    arrivals.add(0, Offered(1.0, drawn(zipf(1.0), random, total=1_000.0)))
    for _ in range(20):
        arrivals.add(0, Offered(LOOK_SECONDS, KeySample.empty()))
    assert arrivals.rate < 10.0


def test_each_record_that_was_looked_at_counts_alike() -> None:
    """Whether it stands for one record or for a million."""
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    look(arrivals, drawn(with_hot(0, 0.6), random, total=1e9))
    for _ in range(5):
        look(arrivals, drawn(with_hot(0, 0.6), random, total=1e3))
    assert arrivals.sample.rows == pytest.approx(6 * ROWS, rel=0.2)


def test_names_are_known_of_keys_of_which_there_is_evidence() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    look(arrivals, drawn(with_hot(3, 0.9), random))
    assert arrivals.names[int(HASHES[3])] == f"name of {HASHES[3]}"


def test_names_of_keys_that_went_are_forgotten() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    shares = np.zeros(KEYS)
    shares[:10] = 0.1
    look(arrivals, drawn(shares, random, 100))
    for _ in range(1_000):
        look(arrivals, drawn(np.roll(shares, 10), random, 100))
    assert sorted(arrivals.names) == sorted(HASHES[10:20].tolist())
