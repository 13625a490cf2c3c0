"""The engines beside which throughput is measured: each counts what is there, or it is said why it does not run."""

from collections.abc import Iterator

import pytest

from experiments.peers import PEERS, running, why_not
from experiments.zipf import ZipfTable, zipf_table


@pytest.fixture(scope="module")
def table() -> Iterator[ZipfTable]:
    with zipf_table(20_000, 0, row_group=3_000) as made:
        yield made


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_counts_as_often_as_it_is_asked(name: str, table: ZipfTable) -> None:
    why = why_not(name)
    if why is not None:
        pytest.skip(why)
    with running(name, table.path) as peer:
        for _ in range(2):
            seconds, counted = peer.run()
            assert seconds > 0
            table.check(name, counted["word"], counted["n"], table.counts)


def test_keys_of_exponent_0_are_equally_frequent() -> None:
    with zipf_table(20_000, 0, keys=100, exponent=0) as made:
        assert made.records == 20_000
        assert len(made.counts) == 100
        assert made.counts.min() > 130


def test_a_peer_that_is_not_installed_is_left_out_with_the_reason_and_one_that_ends_is_an_error(
    table: ZipfTable, capfd: pytest.CaptureFixture[str]
) -> None:
    assert why_not("no_such_engine") == "no_such_engine is not installed: pip install 'dpa[peers]'"
    with running("no_such_engine", table.path) as peer, pytest.raises(RuntimeError, match="with status 1"):
        peer.run()
    assert "KeyError: 'no_such_engine'" in capfd.readouterr().err
