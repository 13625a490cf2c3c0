"""The options of Spark's readers, among which a misspelt one is looked up: Spark passes over what it does not know.

Names are those of Spark 4.3's pages "Data Sources", whose letters' case does not matter.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_OF_FILES = """basePath compression datetimeRebaseMode encoding ignoreCorruptFiles ignoreMissingFiles lineSep
    mergeSchema modifiedAfter modifiedBefore pathGlobFilter recursiveFileLookup timeZone"""
_OF_LINES = """charset columnNameOfCorruptRecord dateFormat enableDateTimeParsingFallback inferSchema locale
    maxMalformedLogPerPartition mode multiLine preferDate samplingRatio singleVariantColumn timestampFormat
    timestampNTZFormat"""

_KNOWN = {
    "parquet": f"{_OF_FILES} int96RebaseMode",
    "text": f"{_OF_FILES} wholetext",
    "json": f"""{_OF_FILES} {_OF_LINES} allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers
        allowNumericLeadingZeros allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames
        dropFieldIfAllNull prefersDecimal primitivesAsString""",
    "csv": f"""{_OF_FILES} {_OF_LINES} charToEscapeQuoteEscaping columnPruning comment delimiter emptyValue
        enforceSchema escape escapeQuotes header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inputBufferSize
        maxCharsPerColumn maxColumns nanValue negativeInf nullValue positiveInf quote quoteAll sep
        unescapedQuoteHandling""",
    "jdbc": """batchsize connectionProvider customSchema dbtable driver fetchsize hint isolationLevel keytab lowerBound
        numPartitions partitionColumn password preferTimestampNTZ prepareQuery principal pushDownAggregate
        pushDownLimit pushDownOffset pushDownPredicate pushDownTableSample query queryTimeout refreshKrb5Config
        sessionInitStatement upperBound url user""",
}


def check_options(form: str, options: Iterable[str]) -> None:
    """Check that no option of a format's reader is one of Spark's, misspelt. Others pass: drivers of databases and
    codecs have their own.

    Raises:
        ValueError: it names the option that is most like it.
    """
    known = {name.lower(): name for name in _KNOWN.get(form, "").split()}
    for option in options:
        close = difflib.get_close_matches(option.lower(), known, n=1, cutoff=0.8)
        if close and option.lower() not in known:
            what = f"Spark's reader of the format `{form}` has no option {option!r}"
            raise ValueError(f"{what}; did you mean {known[close[0]]!r}?")
