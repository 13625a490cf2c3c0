"""What is known of the keys to come: precise where keys stay, quick where they drift, modest where they come and go."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from adaptive_stage import hot, looked
from adaptive_stage import zipf as zipf_of_stage
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa._util.words import key_text
from dpa.balance.adaptive._arrivals import Arrivals, has_changed
from dpa.balance.options import BY_STRATEGY
from dpa.balance.policy import BalancedStage
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


def look(arrivals: Arrivals, sample: KeySample) -> Arrivals:
    """A sender reports this sample, and all of it is looked at."""
    names = {int(hashed): f"name of {hashed}" for hashed in sample.hashes}
    arrivals.add(0, Offered(LOOK_SECONDS, sample, names))
    arrivals.look()
    return arrivals


def share_of(key: int, sample: KeySample) -> float:
    """The part of the records that a key has."""
    return float(sample.records[sample.hashes == HASHES[key]].sum()) / sample.total


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
    random, arrivals, shares = np.random.default_rng(0), Arrivals(tokens), 1 / np.arange(1.0, 2_001)
    hashes = np.sort(random.choice(2**32, 2_000, replace=False).astype(np.uint32))
    for _ in range(40):
        counts = random.multinomial(ROWS, shares / shares.sum())
        look(arrivals, KeySample(hashes[counts > 0], counts[counts > 0].astype(float), ROWS))
    assert arrivals.changes == 0


def test_the_longer_keys_stay_the_better_they_are_known_and_each_record_that_was_looked_at_counts_alike() -> None:
    random, arrivals, shares = np.random.default_rng(0), Arrivals(TOKENS), zipf(1.0)
    errors, rests_on = [], []
    for _ in range(40):
        look(arrivals, drawn(shares, random))
        errors.append(abs(share_of(0, arrivals.sample) - shares[0]))
        rests_on.append(arrivals.sample.rows)
    assert np.mean(errors[20:]) < 0.5 * np.std([share_of(0, drawn(shares, random)) for _ in range(40)])
    assert rests_on[-1] > 5 * rests_on[0]
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    look(arrivals, drawn(with_hot(0, 0.6), random, total=1e9))
    for _ in range(5):
        look(arrivals, drawn(with_hot(0, 0.6), random, total=1e3))
    assert arrivals.sample.rows == pytest.approx(6 * ROWS, rel=0.2)


def test_looks_without_news_change_nothing() -> None:
    arrivals = Arrivals(TOKENS)
    arrivals.look()
    assert (arrivals.sample.total, arrivals.rate, arrivals.names) == (0.0, 0.0, {}), "of nothing nothing is expected"
    before = look(arrivals, drawn(zipf(1.0), np.random.default_rng(0))).sample
    for _ in range(10):
        arrivals.look()
    assert (arrivals.sample, arrivals.changes) == (before, 0)


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


def sorted_looks(looks: int, hot: float = 0.0) -> list[KeySample]:
    """Sorted input: four of the keys, which are new, come between two looks; and a hot one with a share throughout."""
    random, made = np.random.default_rng(0), []
    for at in range(looks):
        shares = np.zeros(KEYS)
        shares[[(1 + 4 * at + one) % KEYS for one in range(4)]] = (1 - hot) / 4
        shares[0] += hot
        made.append(drawn(shares / shares.sum(), random))
    return made


def test_sorted_input_is_unsteady_what_comes_next_is_expected_evenly_and_keys_that_stay_are_believed_again() -> None:
    random, arrivals, persistent, brief = np.random.default_rng(0), *(Arrivals(TOKENS) for _ in range(3))
    for sample, with_one in zip(sorted_looks(20), sorted_looks(20, hot=0.4), strict=True):
        look(arrivals, sample)
        look(persistent, with_one)
    assert not arrivals.is_steady and not persistent.is_steady
    quarters = np.bincount((arrivals.sample.hashes >> np.uint32(30)), arrivals.sample.records, 4)
    assert quarters / quarters.sum() == pytest.approx([0.25] * 4, abs=0.1)
    assert share_of(0, persistent.sample) == pytest.approx(0.4, abs=0.1), "a hot key that persists is kept"
    for sample in (*sorted_looks(6), *(drawn(with_hot(key, 0.6), random) for key in np.repeat(range(12), 5))):
        look(brief, sample)
    assert brief.is_steady
    assert share_of(11, brief.sample) == pytest.approx(0.6, abs=0.1)


def test_what_chance_explains_and_what_is_certain_but_small_is_no_change() -> None:
    random = np.random.default_rng(0)
    few = [(drawn(zipf(1.0), random, 12), drawn(zipf(1.0), random, 12)) for _ in range(200)]
    assert not any(has_changed(one, other) for one, other in few)
    random = np.random.default_rng(0)
    for share in (0.03, 0.05):
        assert not has_changed(drawn(zipf(0.0), random, 10**6), drawn(with_hot(0, share), random, 10**6))


def test_the_rate_is_that_of_all_senders_and_follows_within_a_second_or_two() -> None:
    random = np.random.default_rng(0)
    for rates in ([(1_000.0, 3_000.0)] * 20, [(1_000.0,)] * 40 + [(5_000.0,)] * 8):
        arrivals = Arrivals(TOKENS)
        for sender, rate in ((sender, rate) for look in rates for sender, rate in enumerate(look)):
            arrivals.add(sender, Offered(LOOK_SECONDS, drawn(zipf(1.0), random, total=rate * LOOK_SECONDS)))
        assert arrivals.rate == pytest.approx(sum(rates[-1]), rel=0.15 if len(rates[-1]) == 1 else 1e-6)


def test_blocks_that_fill_the_queues_at_once_say_little_of_a_rate() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for seconds, total in ((1e-5, 100.0), (LOOK_SECONDS, 250.0)):
        arrivals.add(0, Offered(seconds, drawn(zipf(1.0), random, total=total)))
        assert arrivals.rate < 1_500.0


def test_a_sender_that_is_held_back_offers_less_and_one_that_ended_nothing() -> None:
    random, arrivals = np.random.default_rng(0), Arrivals(TOKENS)
    for sender in (0, 1):
        arrivals.add(sender, Offered(1.0, drawn(zipf(1.0), random, total=1_000.0)))
    arrivals.add(0, Offered(0.1, drawn(zipf(1.0), random, total=100.0), ended=True))
    assert arrivals.rate == pytest.approx(1_000.0)
    for _ in range(20):
        arrivals.add(1, Offered(LOOK_SECONDS, KeySample.empty()))
    assert 0.0 < arrivals.rate < 10.0
    arrivals.add(1, Offered(0.1, KeySample.empty(), ended=True))
    assert arrivals.rate == 0.0


def test_names_are_known_of_keys_of_which_there_is_evidence_and_forgotten_when_they_went() -> None:
    random, arrivals, shares = np.random.default_rng(0), Arrivals(TOKENS), np.zeros(KEYS)
    look(arrivals, drawn(with_hot(3, 0.9), random))
    assert arrivals.names[int(HASHES[3])] == f"name of {HASHES[3]}"
    shares[10:20] = 0.1
    for _ in range(1_000):
        look(arrivals, drawn(shares, random, 100))
    assert sorted(arrivals.names) == sorted(HASHES[10:20].tolist())


@settings(max_examples=60)
@given(st.floats(0.0, 3.0), st.integers(20, 3_000), st.integers(1, 30), st.integers(0, 2**32))
def test_the_true_share_of_each_hot_key_is_within_its_bounds(exponent: float, rows: int, looks: int, seed: int) -> None:
    shares, arrivals, random = zipf(exponent), Arrivals(TOKENS), np.random.default_rng(seed)
    true = dict(zip(HASHES.tolist(), shares.tolist(), strict=True))
    for _ in range(looks):
        look(arrivals, drawn(shares, random, rows, total=1e6))
        found = arrivals.hottest
        order = [share for *_, share, _, _ in found]
        assert len(found) <= 10 and order == sorted(order, reverse=True)
        for hashed, _, share, low, high in found:
            assert 0 <= low < share <= high <= 1
            assert low <= true[hashed] <= high


def test_bounds_are_closer_the_longer_keys_stay() -> None:
    random, arrivals, widths = np.random.default_rng(0), Arrivals(TOKENS), []
    for _ in range(30):
        look(arrivals, drawn(with_hot(3, 0.2), random))
        [(hashed, _, _, low, high), *_] = arrivals.hottest
        assert hashed == HASHES[3]
        widths.append(high - low)
    assert widths[0] < 0.11 and widths[-1] < 0.4 * widths[0]


def test_a_key_that_becomes_hot_is_the_hottest_at_the_next_look_and_none_is_where_all_are_rare() -> None:
    random, arrivals = np.random.default_rng(1), Arrivals(TOKENS)
    for key in (*[3] * 30, 7):
        look(arrivals, drawn(with_hot(key, 0.3), random))
    [(hashed, name, share, low, high), *_] = arrivals.hottest
    assert (hashed, name) == (HASHES[7], f"name of {HASHES[7]}")
    assert low < 0.3 < high and share == pytest.approx(0.3, abs=0.05)
    random, arrivals = np.random.default_rng(2), Arrivals(TOKENS)
    for _ in range(10):
        look(arrivals, drawn(zipf(0.0), random))  # of 200
    assert arrivals.hottest == []
    low, high = KeySample(HASHES[:1], np.ones(1), 1_000.0).bounds(1.0)
    assert high == 1.0 and low == pytest.approx(1 - 20 / 1_000)


def test_a_hot_key_is_shown_with_the_task_that_owns_it_and_whether_it_is_split() -> None:
    stage = looked(zipf_of_stage(1.0))
    for found in stage.policy.hottest:
        hashed = next(hashed for hashed, key, *_ in stage.policy._arrivals.hottest if key_text(key) == found.key)
        tasks = stage.table.assignment_of(hashed).reducers
        assert (found.task, found.split) == (tasks[0], len(tasks) > 1)
    [first, *_] = looked(hot(0.9), 3).policy.hottest
    assert first.split and first.low < 0.9 < first.high
    for name in BY_STRATEGY.keys() - {"adaptive"}:  # which do not look at keys
        assert BY_STRATEGY[name](initial_tokens=8).policy(BalancedStage(4)).hottest is None
