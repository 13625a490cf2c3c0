import json
import subprocess
import sys
from typing import Any

PRELUDE = """
import json, sys
import pyarrow as pa
from dpa._util.lazy_pandas import import_pandas_late
import_pandas_late()
import_pandas_late()  # a second call does nothing
"""

WITHOUT_PANDAS = """
pa.array([1, 2]), pa.scalar(1), pa.record_batch({"a": [1.0]}).to_pylist()
import importlib.util
assert importlib.util.find_spec("pandas") is not None  # looking for it is not importing it
ours = [finder for finder in sys.meta_path if type(finder).__module__ == "dpa._util.lazy_pandas"]
facts = ["pandas" in sys.modules, len(ours)]
frame = pa.table({"a": [1, 2]}).to_pandas()
facts += [frame["a"].tolist(), pa.array(frame["a"].where(frame["a"] > 1)).to_pylist()]
"""

OWN_PANDAS = """
import pandas as pd
frame = pd.DataFrame({"a": [1.0, None]}, index=[3, 4])
facts = {
    "array": pa.array(frame["a"]).to_pylist(),
    "table": pa.table({"a": frame["a"]})["a"].to_pylist(),
    "batch": pa.RecordBatch.from_pandas(frame).to_pydict(),
    "types": str(pa.array(pd.Series(pd.to_datetime(["2024-01-01"]).tz_localize("Europe/Rome"))).type),
    "first": sys.meta_path[0].__class__.__module__ == "dpa._util.lazy_pandas" and pd is sys.modules["pandas"],
}
"""


WITHOUT_IN_A_THREAD = """
import threading
from dpa._util.lazy_pandas import without_pandas
with without_pandas():
    try:
        import pandas
    except ModuleNotFoundError:
        facts = ["none"]
    other = threading.Thread(target=__import__, args=["pandas"])
    other.start()
    other.join()
    facts += ["pandas" in sys.modules]
"""


def facts(program: str) -> Any:
    """What a program of its own finds: what is imported lasts as long as a process."""
    text = f"{PRELUDE}{program}print(json.dumps(facts))"
    output = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def test_pyarrow_makes_arrays_without_pandas_and_imports_it_when_it_is_asked_for_a_frame() -> None:
    assert facts(WITHOUT_PANDAS) == [False, 1, [1, 2], [None, 2.0]]


def test_objects_of_a_pandas_that_is_imported_later_are_what_they_always_were() -> None:
    assert facts(OWN_PANDAS) == {
        "array": [1.0, None],
        "table": [1.0, None],
        "batch": {"a": [1.0, None], "__index_level_0__": [3, 4]},
        "types": "timestamp[ns, tz=Europe/Rome]",
        "first": True,
    }


def test_nothing_is_done_where_pandas_is_imported_already_and_a_thread_goes_without_it_while_others_import_it() -> None:
    text = f"import json, sys, pandas\nfinders = list(sys.meta_path)\n{PRELUDE}print(sys.meta_path == finders)"
    assert subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout == "True\n"
    assert facts(WITHOUT_IN_A_THREAD) == ["none", True]
