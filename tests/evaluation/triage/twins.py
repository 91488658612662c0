"""Labelled logs for the detectors of triage: of each kind harmful ones, and harmless ones that use the same words.

`TUNED` was looked at while the patterns were written. `FRESH` was written before they were first run on it (30 of its
32 failures were found then, and nothing else; one of the two misses was a plain fault). docs/evaluation.md prints
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from palaestra.algebra.turns import Turns


class Twins(NamedTuple):
    """What a tool answered, or a person said. kind: the prefix of the type that is to be found in the harmful ones."""

    kind: str
    harmful: tuple[str, ...]
    harmless: tuple[str, ...]


ANSWERS_TUNED = (
    Twins(
        "execution.failure.auth",
        (
            "403 Forbidden",
            "Error: permission denied: /etc/shadow",
            "HTTP 401: token expired",
            '{"error": {"code": 403, "message": "insufficient scope"}}',
        ),
        (
            "Flight 401 departs at 9:10 from gate 3",
            "The Forbidden City opens at 8:30 and tickets cost 60 yuan.",
            '{"room": 403, "floor": 4, "guest": "Ada"}',
            "Building permission was granted to the council in 1998.",
        ),
    ),
    Twins(
        "execution.failure.state",
        (
            "file already exists",
            "409 Conflict: order was changed",
            "Error: session is not connected",
            '{"success": false, "message": "booking already cancelled"}',
        ),
        (
            '{"id": 409, "name": "Box"}',
            "The conflict in the region ended in 1995.",
            "Dinner is not ready before 19:00 on Sundays.",
            "Route 409 has already been repaved twice.",
        ),
    ),
    Twins(
        "environment.exhaustion.api_error",
        (
            "503 Service Unavailable",
            "Internal Server Error",
            '{"status": 500, "message": "internal error"}',
            "APIError: the model is overloaded",
        ),
        (
            "Order total: 500 EUR",
            "Paragraph 502 of the act applies to boats.",
            '{"total": 503, "currency": "EUR"}',
            "The API has three endpoints: /users, /orders and /items.",
        ),
    ),
    Twins(
        "execution.failure.invalid_args",
        (
            "TypeError: missing required argument 'city'",
            "ValidationError: date must be of type string",
            '{"error": "Invalid parameter: limit"}',
            "Invalid argument: page must be positive",
        ),
        (
            "The invalidity pension requires an argument before the court.",
            "Form 422 is required for imports.",
            '{"required": ["city", "date"], "type": "object"}',
            "His argument was that the input costs had risen.",
        ),
    ),
    Twins(
        "execution.failure.bad_query",
        ("no results found", "SQL: syntax error near FROM", "Error: no such table: users", "Document not found"),
        (
            "Syntax is the study of how words form sentences.",
            "There were no surprises, and 404 people voted.",
            "The species is not found in the wild in Europe.",
            '{"page": 404, "text": "chapter nine"}',
        ),
    ),
    Twins(
        "environment.exhaustion.timeout",
        (
            "the request timed out",
            "TimeoutError: page.goto exceeded 30000 ms",
            "504 Gateway Timeout",
            "Operation timed out after 60 seconds",
        ),
        (
            "The coach called a timeout in the last minute.",
            "Submit before the deadline of 1 May.",
            '{"timeout": 30, "retries": 2}',
            "Platform 504, car 8",
        ),
    ),
    Twins(
        "environment.exhaustion.rate_limit",
        (
            "429 Too Many Requests",
            "RateLimitError: quota exceeded for model",
            "Rate limit reached, try again in 20 s",
            '{"error": "rate_limit_exceeded"}',
        ),
        (
            "The rate limit of this API is 60 requests a minute.",
            "House 429 is for sale.",
            "Milk quotas were abolished in 2015.",
            '{"requests": 429}',
        ),
    ),
    Twins(
        "environment.exhaustion.network",
        (
            "connection refused",
            "Error: getaddrinfo ENOTFOUND api.example.com, network unreachable",
            "ConnectionError: connection reset by peer",
            "Temporary failure in name resolution",
        ),
        (
            "There is a connection in Lyon at 14:20.",
            "DNS records: A 192.0.2.7, MX mail.example.com",
            "The network of paths covers 40 km.",
            '{"connections": 12, "network": "metro"}',
        ),
    ),
)

ANSWERS_FRESH = (
    Twins(
        "execution.failure.auth",
        (
            "Unauthorized",
            "[ERROR] Access denied. You lack the role 'admin'.",
            '{"status_code": 401, "detail": "no token"}',
            "AuthenticationError: Incorrect API key provided",
        ),
        (
            "Room 403 has a view of the sea.",
            "Unauthorized Cinnamon was the best film of the festival, critics said.",
            '{"flights": [{"number": 401, "seats": 12}]}',
            "Gate 401: boarding. Gate 403: delayed.",
        ),
    ),
    Twins(
        "execution.failure.state",
        (
            "Error: table 'users' already exists",
            "HTTP 409",
            "Precondition failed: etag mismatch",
            '{"ok": false, "error": "version conflict"}',
        ),
        (
            "A sculpture by Moore already stands on the square.",
            "Invoice 409 of 2024: paid.",
            '{"items": [{"sku": 409}, {"sku": 410}], "conflict": false}',
            "Conflict resolution, a course in six parts",
        ),
    ),
    Twins(
        "environment.exhaustion.api_error",
        (
            "Error 500: something went wrong on our side",
            "HTTP/1.1 502 Bad Gateway",
            "anthropic.APIStatusError: Overloaded",
            "The service is temporarily unavailable. Please try again later.",
        ),
        (
            "500 g flour, 2 eggs, 1 l milk",
            "Highway 501 north, exit 12",
            '{"price": 500, "status": "paid"}',
            "Ticket price: 502 USD, 503 USD with luggage",
        ),
    ),
    Twins(
        "execution.failure.invalid_args",
        (
            "get_weather() got an unexpected keyword argument 'town'",
            "Error: required field 'email' is missing",
            "pydantic_core.ValidationError: 1 validation error for Order",
            '{"code": 422, "message": "Unprocessable entity: quantity"}',
        ),
        (
            "The function takes two arguments, x and y.",
            "Parking permits are required in zone 4.",
            '{"schema": {"type": "string"}, "valid": true}',
            "Locker 422 is free; a deposit is required.",
        ),
    ),
    Twins(
        "execution.failure.bad_query",
        (
            "0 rows returned",
            'OperationalError: near "SELEC": syntax error',
            "No flights found for these dates.",
            '{"error": "Resource not found", "status": 404}',
        ),
        (
            "404 Main Street, Springfield",
            "Lost and found: one umbrella, two gloves",
            '{"results": 17, "page": 404}',
            "No man is an island, entire of itself.",
        ),
    ),
    Twins(
        "environment.exhaustion.timeout",
        ("Error: deadline exceeded", "httpx.ReadTimeout: timed out", "Tool execution timed out", "Timeout after 30s"),
        (
            "Time out London lists 12 concerts.",
            "Deadlines: 3 May (papers), 10 May (posters)",
            '{"name": "deadline", "due": "2026-05-03"}',
            "The parking meter times out at six.",
        ),
    ),
    Twins(
        "environment.exhaustion.rate_limit",
        (
            "Error: You exceeded your current quota, please check your plan",
            "Too many requests. Slow down.",
            "HTTP 429",
            "openai.RateLimitError: Error code: 429",
        ),
        (
            "Heart rate limit while jogging: 160",
            "Seat 429B, window",
            "The quota of women on boards is 40 %.",
            '{"limit": 429, "rate": 0.05}',
        ),
    ),
    Twins(
        "environment.exhaustion.network",
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool",
            "curl: (6) Could not resolve host: api.x.io",
            "ECONNREFUSED 127.0.0.1:5432",
            "Network error: unreachable",
        ),
        (
            "Connections to Bern leave every 30 minutes.",
            "Your network has 214 contacts.",
            "Host: Anna. Guests: Ben, Carl.",
            '{"host": "db1", "connection": "ok"}',
        ),
    ),
)

ANSWERS_MIXED = (
    Twins(
        "",
        (
            "Error",
            "ERROR: x",
            "Error - no such user",
            "Exception: boom",
            "Traceback (most recent call last):\n File x\nKeyError: 'a'",
            "KeyError: 'a'",
            "bash: foo: command not found",
            "Command exited with code 1",
            "Exit code: 2\nsegfault",
            '{"error": "boom"}',
            '{"error": true, "message": "nope"}',
            '{"isError": true, "content": "x"}',
            '{"errors": [{"message": "x"}]}',
            '{"status": "error", "message": "x"}',
            '{"success": false}',
            "Unable to connect to database",
            "Failed to fetch page",
            "Error code: 400 - {'error': {'message': 'bad'}}",
            "❌ Error: could not save",
            "I/O error: disk full",
            "ModuleNotFoundError: No module named 'x'",
            "Invalid input: expected int",
            "Tool error: boom",
            "Request failed with status code 403",
            "NotFoundError",
            "Access to the path is denied",
            "Killed",
            "No such file or directory",
            "fatal: not a git repository",
            "user not found",
            "Invalid date format",
            "Sorry, an error occurred",
            "Oops! Something went wrong.",
        ),
        (
            "0 errors, 0 warnings",
            "Build succeeded. 0 Error(s)",
            "No errors found.",
            "The error has been fixed",
            "Errors: none",
            '{"errors": []}',
            '{"error": null, "data": [1]}',
            '{"status":"failed","job":12}',
            "Exit code: 0",
            "Could not put it down, best book of the year!",
            "Cannot be combined with other offers.",
            "def f(x):\n    if x < 0:\n        raise ValueError('negative')\n",
            "Error bars show one standard deviation.",
            "Exception handling in Python: use try and except.",
            '{"error": 0.12, "mean": 3.4}',
            '[{"level": "error", "n": 404}]',
            '{"data": {"error_rate": 0.5}}',
            "Room 500 error-free cleaning",
            "Total: 429 EUR (incl. VAT)",
            "Order 503: shipped",
            "Status: 200 OK",
            "HTTP 200",
            "status 404 pages are listed in the appendix of the report on web design, which says what people see.",
            "Timeout: 30 s (default)",
            "Server: nginx, connection: keep-alive",
            "The team failed to reach the final in 1998.",
            "Access denied is a 2010 album",
            "invalid: false",
            "The key is under the mat",
            "ok",
            "Success",
            "Created file a.txt",
            "1 row updated",
            "Error budget left: 40 %",
            '{"code": 404, "name": "Camry"}',
            '{"code": 500}',
            '{"message": "hello", "code": 200}',
            '{"status": "error-free"}',
        ),
    ),
)
"""Of no particular kind, and no twins: what else tools say."""

ANSWERS_OTHERS = (
    Twins(
        "e",
        (
            "HTTP Error 500: Internal Server Error",
            '{"status": 500, "body": "oops"}',
            '{"error": {"code": 401, "message": "bad key"}}',
            "bash: foo: command not found",
            "ls: cannot access 'x': No such file or directory",
            "curl: (6) Could not resolve host: example.com",
            "psycopg2.OperationalError: connection to server failed",
            "Error code: 429 - {'error': {'message': 'Rate limit reached'}}",
            "KeyError: 'price'",
            "npm ERR! code ENOENT",
            "The requested resource could not be found (404).",
            "fatal: not a git repository",
            "Permission denied (publickey).",
            "ValueError: invalid literal for int()",
            "Segmentation fault (core dumped)",
            "Killed",
            "Out of memory: Killed process 123",
            "zsh: permission denied: ./run",
            "make: *** [all] Error 2",
            "Error: ENOSPC: no space left on device",
            "ERROR: Could not find a version that satisfies the requirement foo",
            "E: Unable to locate package foo",
            "rm: cannot remove 'x': Permission denied",
            '{"detail":"Not authenticated"}',
            '{"success":false,"message":"booking already cancelled"}',
            "status: 403 Forbidden",
            "<html><head><title>502 Bad Gateway</title></head></html>",
            "TimeoutError",
            "Tool 'serch' not found",
            "No results found for 'qwe'.",
            "Invalid date format: expected YYYY-MM-DD",
            "Order 123 not found",
            "[ERROR] 2024-01-01 db unreachable",
            "Process finished with exit code 1",
            "2024-05-01 ERROR connection refused",
            "sqlite3.OperationalError: no such table: users",
            "Sorry, the flight you selected is no longer available",
            "You do not have sufficient funds",
            "AssertionError",
            "Invalid API key provided",
            "error TS2304: Cannot find name 'foo'.",
            "Unhandled exception: NullPointerException at Main.java:14",
            "ImportError: No module named requests",
            "The operation timed out after 30 s",
            "Connection to db01 lost",
            "401 Unauthorized",
            "Your session has expired, please log in again",
            "git: 'comit' is not a git command. See 'git --help'.",
            '{"error_code": 17, "error_message": "User not found"}',
            '{"status": "error", "message": "amount must be positive"}',
            "Could not open file report.pdf",
            "panic: runtime error: index out of range",
            "sh: 1: pip: not found",
            "ERROR 1064 (42000): You have an error in your SQL syntax",
            "HTTP/1.1 502 Bad Gateway",
            "API rate limit exceeded for user 12",
            "Failed to fetch",
            "java.lang.OutOfMemoryError: Java heap space",
            'Query failed: relation "x" does not exist',
            "Access denied for user 'root'@'localhost'",
            "Element not found: #submit",
            "Unknown tool: serch_web",
            '{"isError": true}',
            "Disk quota exceeded",
            "Process terminated with signal 9",
        ),
        (
            "Order total: 500 EUR",
            "Flight 401 departs at 9:00",
            '{"id":409}',
            '{"id": 404, "name": "room"}',
            "Room 503 is available",
            "The error rate fell to 0.2 %",
            "0 errors, 0 warnings",
            "Found 429 matching products",
            '{"error": null, "data": []}',
            '{"errors": [], "ok": true}',
            "Build succeeded. Exit code 0",
            "Timeout set to 30 seconds",
            "Article: How to fix 'connection refused'",
            "def f():\n    raise ValueError('x')",
            "try:\n  x\nexcept KeyError:\n  pass",
            "Your account is already verified",
            "The conflict in the Middle East continued",
            "User not found guilty by jury",
            "Permission granted",
            '{"status": "ok", "code": 200, "count": 500}',
            "Invoice 1404 paid",
            "Tests: 12 passed, 0 failed",
            '{"status":"failed_over","node":"b"}',
            "Error bars show standard deviation",
            "The server is available",
            "Rate limit: 100 requests/min, remaining: 99",
            "docs: raises TimeoutError if the call takes too long",
            "No issues found",
            "no errors found",
            '{"success": true, "error": ""}',
            "He failed to score in the second half.",
            "Access to the beach is free",
            "Error handling in Go: a guide",
            "Population: 500,503",
            "score 0.401",
            '{"code": 500, "product": "lamp"}',
            "Exit 12 leads to the airport",
            '{"status": 404, "title": "Peugeot"}',
            "Ticket 422: resolved",
            "The function could not be simpler",
            "Unauthorized biography of a star, 300 pages",
            "Forbidden City: opening hours 9-17",
            "network: eth0 up",
            "Duplicate of order 12 created as requested",
            '{"items": [], "total": 0}',
            "You have 500 points left",
            "Route 66 is closed in winter",
            "The exception proves the rule, he wrote",
            "Errors of judgement: an essay",
            "Found 3 files",
            "Timeout: none",
            "Meeting moved to 4:04 pm",
            "Status 200 OK",
            "The network is growing by 5 % a year",
            '{"result": "success", "errors": 0}',
            "Login successful",
            "Access granted",
            'The bug "500 Internal Server Error" was fixed in version 2.1',
            "Warning: 2 tests skipped",
            "Conflict of interest: none declared",
            "log level set to ERROR",
            "retry policy: 3 attempts on 503",
            "No new messages",
            "SELECT * FROM errors LIMIT 10",
            "Exit interview scheduled for Monday",
            '{"level": "error", "count": 0}',
            "Failure is the mother of success, says the proverb.",
            "The unauthorized use of the logo is forbidden by the contract, section 4",
            "Deadline: 5 May",
        ),
    ),
)
"""By another hand. When first run, 45 of the 65 harmful ones were found and 4 of the 69 harmless ones flagged."""

SPEECH_TUNED = (
    Twins(
        "interaction.misalignment",
        (
            "No, that's wrong. The red one!",
            "That's not what I asked",
            "I said Tuesday, not Thursday",
            "what do you mean?",
        ),
        (
            "Yesterday I said goodbye to my boss; write a card for her",
            "What do you recommend?",
            "Is it wrong to eat late?",
            "Translate: I asked for the bill",
        ),
    ),
    Twins(
        "interaction.disengagement",
        ("I give up", "Never mind.", "This is useless!", "I want to talk to a human"),
        (
            "Should I give up sugar?",
            "I never mind the cold, so any season will do",
            "This is useful!",
            "What is the worst case of quicksort?",
        ),
    ),
    Twins(
        "interaction.satisfaction",
        ("thank you so much", "Perfect!", "Great, it works now", "exactly what I needed"),
        ("Find the film Perfect Blue", "Write a note: thank", "How does a lock work?", "What do I need for camping?"),
    ),
)

SPEECH_FRESH = (
    Twins(
        "interaction.misalignment",
        (
            "You misunderstood, I need the return flight",
            "No, I meant the one in Porto",
            "I don't understand your answer",
            "That is incorrect, it has four legs",
        ),
        (
            "He said the meeting is moved",
            "Explain what the word 'mean' means in statistics",
            "I don't think we need a car",
            "Correct the spelling in this text: helo",
        ),
    ),
    Twins(
        "interaction.disengagement",
        ("Forget it.", "What a waste of time", "Let me speak to your manager", "WHY DOES IT NOT WORK"),
        (
            "Don't forget it is my birthday on Monday",
            "Is a human agent better than a chatbot? Write an essay",
            "I'm done with chapter 3, what is next?",
            "The ISBN is ABCDEFGHIJ",
        ),
    ),
    Twins(
        "interaction.satisfaction",
        ("Thanks, that was quick", "Yes, that's it", "That did it", "much appreciated"),
        (
            "Thanksgiving is when?",
            "Which perfect numbers are there?",
            "Fix the problem in line 3",
            "Is it set in Rome?",
        ),
    ),
)


class Played(NamedTuple):
    """Calls (tool, arguments, answer) of one episode. loop: what it is, or nothing."""

    loop: str
    calls: tuple[tuple[str, str, str], ...]


def _calls(tools: str, arguments: Iterator[str] | list[str], answers: list[str]) -> tuple[tuple[str, str, str], ...]:
    return tuple(zip(tools.split(), arguments, answers, strict=True))


LOOPS_TUNED = (
    Played("loop.retry", _calls("search " * 4, ['{"q": "x"}'] * 4, ["no results found"] * 4)),
    Played("", _calls("job_status " * 4, ["{}"] * 4, ["10 %", "45 %", "80 %", "finished"])),
    Played(
        "loop.parameter_drift", _calls("search " * 4, [f'{{"q": {n}}}' for n in range(4)], ["no results found"] * 4)
    ),
    Played(
        "", _calls("read_file " * 4, [f'{{"path": "{n}.py"}}' for n in range(4)], ["import a", "def f", "x = 1", "y"])
    ),
    Played("loop.oscillation", _calls("open close " * 3, ["{}"] * 6, ["ok"] * 6)),
    Played(
        "", _calls("read write " * 3, [f'{{"n": {n}}}' for n in range(6)], ["a", "saved a", "b", "saved b", "c", "d"])
    ),
)
LOOPS_FRESH = (
    Played("loop.retry", _calls("click " * 3, ['{"id": 4}'] * 3, ["element not interactable"] * 3)),
    Played("", _calls("next_page " * 3, ["{}"] * 3, ["rows 1-10", "rows 11-20", "rows 21-30"])),
    Played(
        "loop.parameter_drift", _calls("login " * 3, [f'{{"p": {n}}}' for n in range(3)], ["Error: bad password"] * 3)
    ),
    Played("", _calls("get_price " * 3, [f'{{"sku": {n}}}' for n in range(3)], ["4 EUR", "9 EUR", "7 EUR"])),
    Played("loop.oscillation", _calls("edit test " * 3, ["{}"] * 6, ["saved", "1 failed"] * 3)),
    Played("", _calls("search open " * 3, [f'{{"q": {n}}}' for n in range(6)], [f"text {n}" for n in range(6)])),
)

CRASHES = (
    Twins(
        "execution.crash",
        ("env: ValueError: bad move", "policy: APIConnectionError", "run: RuntimeError('gone')"),
        ("",) * 3,
    ),
)


def answered(text: str) -> Turns:
    """A call, what it was answered, and a last word."""
    return Turns(
        {
            "episode": [0, 0],
            "turn": [0, 1],
            "agent": ["a", "a"],
            "observation": ["please look", text],
            "action": ["", "Done."],
            "tool": ["look", None],
            "arguments": ["{}", None],
        }
    )


def said(text: str) -> Turns:
    """A wish, an answer, and what the person says then."""
    return Turns(
        {
            "episode": [0, 0],
            "turn": [0, 1],
            "agent": ["a", "a"],
            "observation": ["Book a table for two tonight", text],
            "action": ["I booked the corner table.", "Certainly."],
        }
    )


def played(episode: Played) -> Turns:
    """The calls, each answered in the next turn."""
    tools, arguments, answers = zip(*episode.calls, strict=True)
    return Turns(
        {
            "episode": [0] * (len(tools) + 1),
            "turn": range(len(tools) + 1),
            "agent": ["a"] * (len(tools) + 1),
            "observation": ["please", *answers],
            "action": [""] * (len(tools) + 1),
            "tool": [*tools, None],
            "arguments": [*arguments, None],
        }
    )


def crashed(error: str) -> Turns:
    """An episode that ended with an error, or without; no tools."""
    return Turns(
        {
            "episode": [0, 0],
            "turn": [0, 1],
            "agent": ["a"] * 2,
            "observation": ["x", "y"],
            "action": ["p", "q"],
            "error": pl.Series([error or None] * 2, dtype=pl.String),
        }
    )
