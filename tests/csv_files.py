"""Files of CSV that readers have taken for other rows than Spark, and the rows that they are for both."""

CSVS: dict[str, tuple[bytes, list[tuple[str | None, ...]]]] = {
    "doubled quotes": (b'a,s\n"x""y",""""\n', [('x"y', '"')]),
    "backslashes": (b'a,s\nx\\,"p\\q"\n"e\\",\\\n', [("x\\", "p\\q"), ("e\\", "\\")]),
    "empty values": (b'a,s\n"",x\n,x\n,""\n', [(None, "x"), (None, "x"), (None, None)]),
    "short rows": (b'a,s\n1\n"1"\n1,2\n', [("1", None), ("1", None), ("1", "2")]),
    "Latin-1": (b"a,s\ncaf\xe9,\xe9\xe8\n", [("caf\ufffd", "\ufffd\ufffd")]),
    "CR": (b"a,s\r1,2\r3,4\r", [("1", "2"), ("3", "4")]),
    "CR after the header": (b"a,s\r1,2\n3,4\n", [("1", "2"), ("3", "4")]),
    "CRLF": (b'a,s\r\n1,"2"\r\n3,4\r\n', [("1", "2"), ("3", "4")]),
    "all ends": (b"a,s\r1,2\n3,4\r\n\r5,6", [("1", "2"), ("3", "4"), ("5", "6")]),
    "a header alone": (b"a,s\n", []),
    "blank lines": (b"\n \na,s\n\n  \n1,2\n\t\n\r\n\x01\x0b\n3,4\n", [("1", "2"), ("3", "4")]),
    "spaces": (b'a,s\n 1 , \n" q ","\t"\n', [(" 1 ", " "), (" q ", "\t")]),
    "a mark of UTF-8": (b'\xef\xbb\xbf"a",s\n1,2\n', [("1", "2")]),
    "separators in quotes": (b'a,s\n"1,2","3,""4"""\n', [("1,2", '3,"4"')]),
    "no values": (b"a,s\n,\n", [(None, None)]),
    "a byte 0": (b"a,s\nx\0y,2\n", [("x\0y", "2")]),
    "words for null": (b"a,s\nNULL,NaN\n", [("NULL", "NaN")]),
}
"""Each file, and its rows."""
