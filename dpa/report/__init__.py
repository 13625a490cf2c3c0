"""What people see of a run: live progress, the summary at the end, the files of the report, and the picture of a plan.

Everything here is drawn from `Snapshot` (`dpa.protocol.wire.metrics`) and `dpa.result.Report`; nothing here decides
anything or computes a metric. rich is imported to draw only."""

from dpa.report._drawing import draw_plan
from dpa.report._files import ReportError, check_directory, plan_json, schema, to_json, write, write_page
from dpa.report._history import EarlierRun, earlier_runs, keep
from dpa.report._notebook import error_html, rows_html, steps_html
from dpa.report._screens import MODES, make_progress, progress_in_python, show, show_plan, show_rows, show_table

__all__ = [
    "MODES",
    "EarlierRun",
    "ReportError",
    "check_directory",
    "draw_plan",
    "earlier_runs",
    "error_html",
    "keep",
    "make_progress",
    "plan_json",
    "progress_in_python",
    "rows_html",
    "schema",
    "show",
    "show_plan",
    "show_rows",
    "show_table",
    "steps_html",
    "to_json",
    "write",
    "write_page",
]
