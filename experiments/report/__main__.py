"""Write `docs/results.md` and the table of the README from the committed result files."""

from __future__ import annotations

import argparse

from experiments.report.ages import Ages, History, ages_of, save_ages
from experiments.report.findings import load_findings
from experiments.report.page import COMMAND, PAGE, README, render_page, with_table
from experiments.report.results import load_results

if __name__ == "__main__":
    argparse.ArgumentParser(prog=COMMAND, description=__doc__).parse_args()
    results, findings, history = load_results(), load_findings(), History()
    ages = Ages(history.commit, ages_of(results, findings, history))
    save_ages(ages)
    PAGE.write_text(render_page(results, findings, ages), encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), results, findings), encoding="utf-8")
    print(f"wrote {PAGE.name} and the table of {README.name} from {len(results)} result files")
