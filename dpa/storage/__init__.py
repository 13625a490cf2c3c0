"""Where checkpoints, results and logs of epochs lie: in a directory, or in object storage that speaks S3's protocol."""

from dpa.storage._directory import DirectoryFiles
from dpa.storage._files import Files, Purpose
from dpa.storage._s3 import S3Files

__all__ = ["DirectoryFiles", "Files", "Purpose", "S3Files", "files_at"]


def files_at(uri: str, purpose: Purpose) -> Files:
    """The files below `s3://bucket/prefix` or a directory, without looking at them yet. Raises DpaError if the URI
    names no bucket."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme.lower() == "s3":
        return S3Files.at_uri(f"s3://{rest}", purpose)
    return DirectoryFiles.at_path(uri, purpose)
