from pathlib import Path

from dpa.spark._java import jvm_options


def test_an_archive_of_classes_is_used_where_there_is_one(tmp_path) -> None:
    archive = tmp_path / "with blanks" / "spark.jsa"
    assert "SharedArchiveFile" not in jvm_options(archive)
    archive.parent.mkdir()
    archive.touch()
    assert f'-XX:SharedArchiveFile="{archive}"' in jvm_options(archive)


def test_code_is_optimized_later_with_an_archive_or_without() -> None:
    assert "-XX:Tier4InvocationThreshold=500000" in jvm_options(Path("none.jsa")).split()
