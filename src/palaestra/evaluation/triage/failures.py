"""[109] Whether a tool's answer is a failure, and of which kind.

An answer counts as a failure only where it says so itself: the log's own `tool_error` or status, an object of JSON
with an error in it, a text that opens as errors do (`TypeError: …`, `HTTP 503`, `Failed to …`), or a short text with a
phrase that stands in nothing else. In such an answer the kind is found by its words; in any other a number or a word
like "conflict", "forbidden" or 401 means nothing. Kinds and confidences follow the released code; the patterns are our
own.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import polars as pl

SHORT, READ = 240, 2000
"""Characters of a text in which a phrase is enough; characters that are read."""
_NONE = {"", "none", "null", "no", "no error", "ok", "false", "n/a", "0"}
_REASONS = (
    r"400 bad request|401 unauthori[sz]ed|403 forbidden|404 not found|405 method not allowed|408 request time-?out"
    r"|409 conflict|410 gone|413 (payload|content|request entity)|422 unprocessable|429 too many requests"
    r"|500 internal server error|502 bad gateway|503 service unavailable|504 gateway time-?out"
)
_WORK = (
    r"(find|found|open|opened|read|write|connect|parse|resolve|access|load|import|create|delete|perform|process|complete|"
    r"completed|execute|locate|reach|fetch|retrieve|update|save|send|start|authenticate|decode|click"
    r"|get|install|apply)\b"
)
MARKS = "|".join(
    (
        r"^\W{0,4}((observation|result|output|stderr|tool|response|execution|runtime|system|server|api|http|fatal)\W{1,3}){0,2}"
        r"(\w+\.)*\w*(error|exception)\b\W{0,2}(:|!| - |\(|\[|\]|occurred|while|when|code|executing|calling|\d|$)",
        r"^\W{0,4}((\w+\.)*[a-z]+(error|exception)\b\W|(\w+\.)+[a-z]+timeout:|fatal: |[\w/]{1,12} error: [a-z])",
        r"^.{0,60}\b(error (has )?occurred|something went wrong|access .{0,30}(is|was) denied)",
        r"^.{0,200}traceback \(most recent call last\)",
        rf"^\W{{0,4}}(failed to|failure:|(unable to|could not|couldn't|cannot|can't) (be )?{_WORK}|\w+ failed:)",
        r"^\W{0,4}(request|command|tool|call|query|operation|execution|login) failed",
        rf"^.{{0,60}}\b({_REASONS})",
        r"^.{0,60}\b(http(/\d(\.\d)?)?|status( code)?|error( code)?|response code)\s*[:=]?\s*[45]\d\d\b(\W|$)",
        r"^.{0,120}\bexit(ed)?( with)?( status| code)\W{0,2}[1-9]\d*\b",
        r"^(\w+ )?(segmentation fault|bus error|out of memory\W)|^killed\W*$|\(core dumped\)|^npm err!|^e: \w"
        r"|^make(\[\d+\])?: \*\*\*|^error [a-z]{0,4}\d+\b|^(unhandled|uncaught) (exception|error)|^panic:"
        r"|\b(killed|terminated) (by|with) signal \d",
    )
)
"""How a text opens that reports a failure."""


class Kind(NamedTuple):
    """Data of a kind of failure: name, confidence, and two regular expressions for its texts, `weak` and `strong`.

    weak: what says the kind in a text that is a failure. strong: what is enough in a short text that may be one.
    """

    name: str
    confidence: float
    weak: str
    strong: str


_THING = r"(file|folder|directory|path|name|user|account|record|entry|key|table|branch|resource|item|event|email|id)"
_WORKER = r"(device|server|service|session|client|system|database|engine|environment|browser|socket)"
_CALL = r"(request|operation|connection|call|query|command|tool|execution|process|server|page|gateway|read|response)"
_FOUND = r"(results?|rows?|matches|match|records?|entries|items?|flights|orders?|products|documents|hits|data)"
KINDS: tuple[Kind, ...] = (
    Kind(
        "environment.exhaustion.rate_limit",
        0.95,
        r"rate.?limit|too many requests|quota|throttl|\b429\b",
        r"rate limit(ed\b| exceeded| reached| hit)|too many requests|quota (has been )?exceeded|ratelimiterror"
        r"|exceeded (your|the) .{0,30}(quota|rate limit)",
    ),
    Kind(
        "environment.exhaustion.context_overflow",
        0.95,
        r"context.(length|window)|maximum context|too many tokens|prompt is too long|token limit"
        r"|maximum number of tokens",
        r"^(this model'?s )?maximum context length is \d|exceed\w* .{0,30}context"
        r"|context (length|window) .{0,20}exceeded"
        r"|too many tokens|prompt is too long|exceeds? .{0,30}(token limit|maximum number of tokens)"
        r"|context_length_exceeded",
    ),
    Kind(
        "environment.exhaustion.timeout",
        0.9,
        r"time[d]?[ -]?out|deadline|\b(504|508|408)\b",
        rf"\b{_CALL}\b.{{0,40}}timed out|timed out (after \d|while|waiting)|^timed out\W*$|timeouterror"
        r"|timeout (exceeded|after \d|expired|of \d+\s?m?s exceeded)|deadline exceeded|gateway time-?out",
    ),
    Kind(
        "environment.exhaustion.network",
        0.9,
        r"connection|network|\bdns\b|name resolution|resolve host|\bssl\b|econn|unreachable|\bsocket\b",
        r"connection (was )?(refused|reset|aborted|error\b|closed by)|network (is )?(unreachable|error)"
        r"|econn(refused|reset)"
        r"|(failure in|temporary failure).{0,20}name resolution|could not resolve host|dns (error|lookup failed)"
        r"|no route to host|remote end closed|^connection .{0,30}\blost\W*$",
    ),
    Kind(
        "execution.failure.tool_not_found",
        0.95,
        r"(tool|function|command)\b.{0,60}(not found|does not exist|is unknown|not available)"
        r"|unknown (tool|function|command)"
        r"|no such (tool|function)|no (tool|function) (named|called)",
        r"\btool\b.{0,60}(not found|does not exist|is unknown|not available)|^unknown (tool|function|command)\b"
        r"|no such (tool|function)|command not found\W*$|is not a (\w+ )?command\b|no (tool|function) (named|called)",
    ),
    Kind(
        "execution.failure.auth",
        0.8,
        r"unauthori[sz]ed|forbidden|permission|access denied|not (authori[sz]ed|allowed|permitted)"
        r"|credential|api.?key"
        r"|token .{0,12}(expired|invalid)|authenticat|\b40[13]\b",
        r"permission denied|access denied\W*$|access denied([:.]| for (user|role)\b)"
        r"|session (has )?expired|not authori[sz]ed to|^unauthori[sz]ed\W*$"
        r"|^forbidden\W*$"
        r"|(invalid|expired|incorrect) (api.?key|access token|credentials|password)"
        r"|authentication (failed|required)\W*$",
    ),
    Kind(
        "environment.exhaustion.malformed_response",
        0.85,
        r"json.{0,12}(decode|pars)|(decode|pars)\w* .{0,12}json|response (decode|pars\w+) error"
        r"|malformed (response|json)"
        r"|unexpected (end of|token|eof)|expecting value",
        r"(json|response) (decode|parse|parsing) error|jsondecodeerror|malformed (response|json)\W*$|invalid json\b"
        r"|unexpected (end of (json|input|file)|token .{0,12}in json|eof)|expecting value: line",
    ),
    Kind(
        "execution.failure.bad_query",
        0.8,
        r"syntax|malformed query|could not parse|invalid (query|sql|regex|expression)"
        r"|no such (table|column)|unknown column",
        r"syntax error(:| at | near |\W*$| in (line|sql|your sql))|malformed query"
        r"|invalid (query|sql|regex)\b(:|\W*$)"
        r"|could not parse|no such (table|column)|unknown column '",
    ),
    Kind(
        "execution.failure.invalid_args",
        0.9,
        r"invalid (\w+ )?(argument|parameter|input|type|value|format|date)"
        r"|missing (\d+ )?(required|argument|parameter|field)"
        r"|required (argument|parameter|field|property)|validation|schema mismatch|typeerror"
        r"|unprocessable|bad request"
        r"|unexpected keyword|is not a valid|must be (an? |one of|of type)|\b4(00|22)\b",
        r"^invalid (\w+ )?(argument|parameter|input)|^invalid (\w+ ){0,2}(date|format|type|value)\W*([:,;(]|$|expected)"
        r"|missing (\d+ )?required (\w+ )?(argument|parameter|field)"
        r"|(argument|parameter|field) .{0,40}is (required|missing)|validation (error|failed)"
        r"|unexpected keyword argument",
    ),
    Kind(
        "execution.failure.state",
        0.85,
        r"already|not (yet )?(initiali[sz]ed|logged in|connected|ready|open|started)|conflict"
        r"|invalid state|precondition"
        r"|duplicate|in use|locked|\b409\b",
        rf"\b{_THING}\b.{{0,60}} already exists"
        rf"|{_WORKER} (is )?not (yet )?(ready|connected|initiali[sz]ed|open|started)"
        r"|not logged in\W*$|you are not logged in|^invalid state\b|precondition failed"
        r"|(version|edit|write) conflict\b",
    ),
    Kind(
        "environment.exhaustion.api_error",
        0.9,
        r"internal server error|unavailable|bad gateway|api.?error|overloaded|server error|\b50[0-3]\b",
        r"internal server error|service (is )?(temporarily |currently )?unavailable|bad gateway|overloaded_error"
        r"|(server|model|api) (is )?(currently )?overloaded|^overloaded\W*$",
    ),
    Kind(
        "execution.failure.bad_query",
        0.6,
        r"not found|does not exist|no such|\b404\b|no results",
        rf"\bno (\w+ ){{0,2}}{_FOUND} (were |was )?(found|returned|match)|^no {_FOUND}\W*$"
        rf"|^(\S+ ){{0,6}}not found(\W*$|: \S+\W*$)|^the requested \w+ could not be found\b"
        rf"|returned no {_FOUND}|^0 {_FOUND}( found| returned)?\W*$|no such file|^nothing (was )?found\W*$",
    ),
)
"""The first kind that fits counts."""
ABOUT = (
    r"^\W*(article|chapter|docs?|documentation|faq|guide|title|tutorial)\b|\bhow to (avoid|debug|fix|handle|solve)\b"
    r"|\b(raises|returns|throws) \w*(error|exception|timeout)\w* if\b"
)
"""How a short text speaks about failures without being one."""
DETAIL = r"\bnot (found|authenticated|authori[sz]ed|allowed)\b|forbidden|unauthori[sz]ed|internal server error"
"""What makes an object that holds nothing but `detail` a failure."""
OTHER = ("execution.failure.other", 0.7)
"""A failure by its own words, of no known kind."""


def failures(answers: pl.DataFrame) -> pl.DataFrame:
    """DataFrame of detections (row, type, confidence, evidence) of failed calls, by the texts of the table `answers`.

    answers: `row`, `text`, and `sure`: whether the log itself says that the call failed.
    """
    raw = pl.col("text").str.slice(0, READ)
    table = answers.with_columns(lower=raw.str.strip_chars().str.to_lowercase()).with_columns(
        json=pl.col("lower").str.contains(r'^(\{|\[\s*[\[{"\d\]])')
    )
    said = pl.col("json") & pl.col("lower").str.contains(
        r'"\w*(error|exception|status|success|ok|code)\w*"\s*:|^\{\s*"detail"\s*:'
    )
    objects = table.filter(said & ~pl.col("sure"))
    words = {row: _of_json(text) for row, text in objects.select("row", "text").rows()}
    spoken = pl.DataFrame(
        [(row, text) for row, text in words.items() if text is not None],
        schema={"row": table.schema["row"], "spoken": pl.String},
        orient="row",
    )
    table = table.join(spoken, on="row", how="left", maintain_order="left")
    marked = pl.col("lower").str.contains(MARKS) & ~pl.col("json")
    failed = pl.col("sure") | pl.col("spoken").is_not_null() | marked
    about = pl.col("lower").str.contains(ABOUT)
    short = ~pl.col("json") & ~about & (pl.col("lower").str.len_chars() <= SHORT)
    words_of = pl.coalesce("spoken", pl.col("lower").str.slice(0, 600))
    kind = pl.when(failed).then(pl.lit(OTHER[0]))
    sure = pl.when(pl.col("sure")).then(0.9).when(failed).then(OTHER[1])
    kind_of, sure_of = kind.otherwise(None), sure.otherwise(None)
    for each in reversed(KINDS):
        hit = (failed & words_of.str.contains(each.weak)) | (short & pl.col("lower").str.contains(each.strong))
        kind_of = pl.when(hit).then(pl.lit(each.name)).otherwise(kind_of)
        sure_of = pl.when(hit).then(pl.lit(each.confidence)).otherwise(sure_of)
    evidence = pl.col("text").str.replace_all(r"\s+", " ").str.slice(0, 200)
    hits = table.select(pl.col("row").cast(pl.Int64), type=kind_of, confidence=sure_of, evidence=evidence)
    return hits.filter(pl.col("type").is_not_null())


def _of_json(text: str) -> str | None:
    """Failure that an object reports of itself, in lower case; None if it reports none."""
    try:
        said = json.loads(text[:20_000])
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    fields = {key.casefold().replace("_", ""): value for key, value in said.items()}
    if fields.keys() == {"detail"} and isinstance(fields["detail"], str):
        alone = fields["detail"].lower()
        return alone if re.search(DETAIL, alone) else None
    errors = [v for k in ("error", "errors", "exception", "errormessage", "iserror") if _is_error(v := fields.get(k))]
    words = [
        str(fields[k]) for k in ("message", "detail", "details", "reason", "title") if isinstance(fields.get(k), str)
    ]
    codes = [v for k in ("status", "statuscode", "httpstatus", "httpcode") if _is_code(v := fields.get(k))]
    codes += [fields["code"]] if (errors or words) and _is_code(fields.get("code")) else []
    wrong = fields.get("success") is False or fields.get("ok") is False
    status = str(fields.get("status")).casefold()
    wrong = wrong or status == "error" or (status in ("failed", "failure", "fail") and bool(errors))
    if not (errors or codes or wrong):
        return None
    return " ".join(
        [*map(str, codes), *(json.dumps(e) if not isinstance(e, str) else e for e in errors), *words]
    ).lower()


def _is_error(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().casefold() not in _NONE
    if isinstance(value, dict):
        return bool(value.keys() & {"message", "code", "type", "status", "detail", "reason"})
    return value is True or _is_code(value) or (isinstance(value, list) and bool(value))


def _is_code(value: Any) -> bool:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) == 3 else value
    return isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600
