"""`--plan` on the terminal: the resolved job, each reducer's share of the ring and of a sample, and the hot keys of
the sample."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TextIO

from dpa._util.secrets import as_yaml, without_secrets
from dpa.report._data import jsonable
from dpa.report._files import dump_json
from dpa.report._text import bar, count, key_text, percent
from dpa.routing.groupings.options import RING

if TYPE_CHECKING:
    from rich.console import Console

    from dpa.driver.forecast import Forecast

_BAR_COLUMNS = 10
_MAX_REDUCERS = 64
_EVEN, _UNEVEN = 0.05, 0.2
"""A forecast S below the first is called even, one above the second uneven."""


def show_plan(forecast: Forecast, stream: TextIO, *, width: int | None = None) -> None:
    """Print a forecast on `stream`, in `width` columns (the terminal's if None). Characters that the
    stream's encoding lacks are escaped."""
    from rich.console import Console

    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:  # rich ends the process when the reader of the stream has gone
        _print_plan(forecast, console)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(captured.get().encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _print_plan(forecast: Forecast, console: Console) -> None:
    from rich.table import Table

    plain = console.options.ascii_only
    resolved = as_yaml(forecast.config, width=console.width)
    console.print("resolved job", style="bold")
    console.print("".join(f"  {line}\n" for line in resolved.splitlines()), soft_wrap=True)
    whole = f" of {count(forecast.rows)}" if forecast.rows is not None else ""
    console.print(f"sample: {count(forecast.sampled)}{whole} rows, which map to {count(forecast.mapped)} records\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("reducer", "tokens", "ring", "records", "share"):
        table.add_column(name, justify="right")
    table.add_column("")
    most = max(forecast.loads, default=0)
    for reducer, load in enumerate(forecast.loads[:_MAX_REDUCERS]):
        share = load / forecast.mapped if forecast.mapped else 0.0
        drawn = bar(load / most if most else 0.0, _BAR_COLUMNS, ascii_only=plain)
        ring = percent(forecast.shares[reducer])
        table.add_row(str(reducer), count(forecast.tokens[reducer]), ring, count(load), percent(share), drawn)
    console.print(table)
    if len(forecast.loads) > _MAX_REDUCERS:
        console.print(f"and {len(forecast.loads) - _MAX_REDUCERS} more reducers")
    kind = forecast.config["grouping"]["kind"]
    how = "without balancing" if kind == RING else f"by the grouping `{kind}`, on reducers of equal speed"
    console.print(f"\nforecast skew S {forecast.skew:.3f}, {how}: {_advice(forecast)}")
    if forecast.hot:
        console.print("\nhot keys of the sample", style="bold")
        keys = Table.grid(padding=(0, 2))
        for hot in forecast.hot:
            keys.add_row(f"  {key_text(hot.key)}", percent(hot.share), count(hot.records))
        console.print(keys)


def plan_json(forecast: Forecast) -> str:
    """A forecast as strict JSON in ASCII, as docs/report.md describes it."""
    plan: dict[str, Any] = jsonable({"schema": "dpa-plan-1", **dataclasses.asdict(forecast)})
    return dump_json({**plan, "config": without_secrets(plan["config"])})


def _advice(forecast: Forecast) -> str:
    even = 1 / len(forecast.loads)
    one_owner = forecast.config["grouping"]["kind"] in (RING, "key")
    if one_owner and forecast.hot_keys and len(forecast.loads) > 1 and forecast.hot_keys[0].share > even:
        hot = key_text(forecast.hot_keys[0].key)
        found = f"the key {hot} alone is more than one reducer's even share"
        if forecast.config["balance"]["strategy"] == "adaptive":
            return f"{found}; it will be split over reducers if its records have to wait, which a combiner may avoid"
        return f"{found}; only the strategy `adaptive`, a grouping that splits keys, or a combiner helps"
    if forecast.skew < _EVEN:
        return "already even"
    return "uneven" if forecast.skew > _UNEVEN else "slightly uneven"
