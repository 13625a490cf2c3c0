"""The version of the package, read by its metadata and by reports."""

VERSION = "0.1.0"
