"""The page of a run as one file that needs no network, with the run's view inside."""

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib import resources
from json import dumps

from dpa.door.view import View

_STYLE, _SCRIPT = '<link rel="stylesheet" href="page.css">', '<script src="page.js" defer></script>'
_HEAD = '<meta charset="utf-8">\n'


def page_of(view: View) -> str:
    """A browser runs nothing but the page's own script, and fetches nothing, whatever is in the view."""
    files = resources.files(__name__)
    page, style, script = (files.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'"
    # In a script element only `<` could end the data. JSON has it in texts alone, where it may be written so.
    data = dumps(view, allow_nan=False).replace("<", "\\u003c")
    job = view["job"]
    for old, new in (
        (_HEAD, f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">\n'),
        ("<title>dpa</title>", f"<title>{escape(job['name'])}: {escape(job['status'])}</title>"),
        (_STYLE, f"<style>{style}</style>"),
        (_SCRIPT, f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>'),
    ):
        assert old in page
        page = page.replace(old, new, 1)
    return page


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
