"""The style sheet of the page: light or dark as the reader's system is set; it fetches nothing."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f8; --ink: #1f2328; --faint: #656d76; --grid: #d9dde1;
  --bar: #0072b2; --good: #1a7f37; --bad: #c62828;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1d2125; --ink: #e4e7ea; --faint: #9aa4ad; --grid: #3a4148;
    --bar: #4aa3d9; --good: #57c26b; --bad: #ff7b72;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--grid); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
header { display: flex; align-items: baseline; gap: .8rem; flex-wrap: wrap; margin-bottom: 1.2rem; }
.status { font-weight: 600; color: var(--bad); }
.status.ok { color: var(--good); }
.note { color: var(--faint); margin: .4rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem; margin: 0; }
.cards div { background: var(--card); border-radius: 6px; padding: .6rem .8rem; }
.cards dt { color: var(--faint); font-size: .85rem; }
.cards dd { margin: 0; font-size: 1.25rem; font-weight: 600; overflow-wrap: anywhere; }
.cards dd small { display: block; font-size: .82rem; font-weight: 400; color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th { text-align: left; font-weight: 600; color: var(--faint); }
th, td { padding: .22rem .9rem .22rem 0; vertical-align: top; border-bottom: 1px solid var(--grid); }
td.n, th.n { text-align: right; white-space: nowrap; }
td code { font: .95em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.bar { display: inline-block; width: 7rem; height: .7em; background: var(--card); }
.bar i { display: block; height: 100%; background: var(--bar); }
figure { margin: 1rem 0; color: var(--ink); }
figure svg { width: 100%; height: auto; display: block; }
pre {
  background: var(--card); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; margin: .6rem 0;
  font: .85rem/1.45 ui-monospace, Menlo, Consolas, monospace;
}
pre.bad { border-left: 3px solid var(--bad); white-space: pre-wrap; overflow-wrap: anywhere; }
details > summary { cursor: pointer; color: var(--faint); margin: .5rem 0; }
@media screen and (max-width: 40rem) { /* a row is a paragraph in which each value has its name before it */
  thead, td:empty { display: none; }
  tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .3rem 0; border-bottom: 1px solid var(--grid); }
  td { border: 0; padding: 0; }
  td::before { content: attr(data-name) " "; color: var(--faint); }
}
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
