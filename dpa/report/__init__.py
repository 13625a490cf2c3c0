"""What people see of a run: live progress, the summary at the end, the pictures, and the files of the report.

Everything here is drawn from `Snapshot` (`dpa.protocol.wire.metrics`) and `dpa.result.Report`; nothing here decides
anything or computes a metric. `plots` holds the pictures, for papers and notebooks. matplotlib and rich are imported to
draw only.
"""

from dpa.report._files import ReportError, check_directory, plan_json, schema, to_json
from dpa.report._history import EarlierRun, earlier_runs, keep
from dpa.report._html import write
from dpa.report._notebook import error_html, rows_html, steps_html
from dpa.report._pictures import draw_plan
from dpa.report._plain import ProgressDisplay
from dpa.report._screens import MODES, make_progress, progress_in_python, show, show_plan, show_rows, show_table
from dpa.report.plots import check_pictures

__all__ = [
    "MODES",
    "EarlierRun",
    "ProgressDisplay",
    "ReportError",
    "check_directory",
    "check_pictures",
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
]
