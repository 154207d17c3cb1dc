"""What modules that know no page promise: formats, orders, routes, curves, timelines, sentences, and the stream."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from remuda.tests.page.browser.devtools import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.processes]

STATIC = Path(__file__).parents[3] / "page" / "static"


class Silent(SimpleHTTPRequestHandler):
    """Serves the files alone, and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Generator[Page]:
    """A tab that can import the modules."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=STATIC)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        page = browser.page()
        try:
            page.open(f"http://127.0.0.1:{server.server_port}/format.js")
            page.until("document.body.innerText.includes('export')")
            yield page
        finally:
            page.close()
            server.shutdown()
            thread.join()


def call(page: Page, module: str, expression: str) -> Any:
    """The value of an expression with all names of a module."""
    names = f"const {{{', '.join(exports(module))}}} = await import('./{module}.js');"
    return page.js(f"(async () => {{ {names} return ({expression}); }})()")


def exports(module: str) -> list[str]:
    from remuda.tests.page.test_static import exports as exported

    return sorted(exported(f"{module}.js"))


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("count(1234567)", "1,234,567"),
        ("count(null)", "–"),
        ("digits(0.123456)", "0.1235"),
        ("digits(-3.14159, 3)", "−3.14"),
        ("digits(0.00000123, 2)", "1.2e−6"),
        ("short(12345)", "12.3 k"),
        ("short(1234567)", "1.23 M"),
        ("rate(1234.5)", "1,235/s"),
        ("share(0.004)", "< 1 %"),
        ("bytes(1536)", "1.5 KiB"),
        ("duration(3723)", "1:02:03"),
        ("duration(2 * 86400 + 11040)", "2 d 3:04 h"),
        ("age(150)", "3 min"),
        ("ago(100, 110)", "10 s ago"),
        ("plural(1200, 'run')", "1,200 runs"),
        ("list(['a', 'b', 'c'])", "a, b and c"),
        ("sentence('waits for a learner. ')", "Waits for a learner."),
        ("sentence('env.make cannot be imported')", "env.make cannot be imported."),
    ],
)
def test_numbers_are_written_for_people(modules: Page, expression: str, shown: str) -> None:
    assert call(modules, "format", expression) == shown


@pytest.mark.parametrize("run", ["a", "lr_sweep/lr=0.1/s3", "100% <b>", "ü ?#&"])
def test_an_address_leads_to_the_run_that_it_names(modules: Page, run: str) -> None:
    there = call(modules, "api", f"parsed(runAddress({json.dumps(run)}, 'logs', {{file: 'x/y.txt', none: null}}))")
    assert (there["view"], there["parts"]) == ("run", [run, "logs"])
    assert (
        call(modules, "api", f"parsed(runAddress({json.dumps(run)}, 'logs', {{file: 'x/y'}})).query.get('file')")
        == "x/y"
    )


def test_the_token_is_taken_out_of_the_address(modules: Page) -> None:
    token = "A-b_" + 39 * "c"

    def taken(hash_: str) -> list[object]:
        place = f"{{hash: {json.dumps(hash_)}, pathname: '/'}}"
        browser = "{replaceState: (a, b, to) => said.push(to)}, {setItem: (key, value) => said.push(value)}"
        found: list[object] = call(modules, "api", f"((said) => (takeToken({place}, {browser}), said))([])")
        return found

    assert taken(f"#token={token}") == [token, "/#"]
    assert taken(f"#token={token}&/run/a") == [token, "/#/run/a"]
    assert taken(f"#/queue?x=1&token={token}") == [token, "/#/queue?x=1"]
    assert taken("#/queue") == []
    assert call(modules, "api", f"tokenIn('http://127.0.0.1:80/#token={token}')") == token
    assert call(modules, "api", "tokenIn('hello you')") == ""
    assert call(modules, "api", "query({run: ['a/b', 'c'], y: '', x: null, n: 0})") == "?run=a%2Fb&run=c&n=0"


def test_the_stream_is_read_wherever_its_pieces_end(modules: Page) -> None:
    text = (
        ': hello\n\nid: 1.2\nevent: queue\ndata: {"text": "a: b\\n\\nc"}\n\nevent: run\ndata: {}\n\n: still there\n\n'
    )
    whole = [{"id": "1.2", "event": "queue", "data": {"text": "a: b\n\nc"}}, {"id": None, "event": "run", "data": {}}]
    for size in (1, 2, 7, 1000):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        found = call(
            modules, "api", f"((parser) => {json.dumps(pieces)}.flatMap((piece) => parser.feed(piece)))(new Parser())"
        )
        assert found == whole


def test_seeds_are_one_line_with_a_band(modules: Page) -> None:
    def run(name: str, group: str, x: list[int]) -> dict[str, object]:
        return {"run": name, "group": group, "x": x, "last": x, "min": x, "max": [one + 1 for one in x]}

    answer = {
        "runs": [run("a1", "a", [1]), run("a2", "a", [1]), run("b1", "b", [2]), run("empty", "c", [])],
        "groups": [
            {"group": "a", "runs": ["a1", "a2"], "x": [1], "mean": [1.5], "low": [1], "high": [2], "count": [2]},
            {"group": "b", "runs": ["b1"], "x": [2], "mean": [2], "low": [None], "high": [None], "count": [1]},
        ],
    }
    told = json.dumps(answer)
    found = call(modules, "chart", f"lines({told})")
    assert [line["name"] for line in found] == ["a (2 seeds)", "b1"]
    assert (found[0]["mean"], found[0]["low"], found[0]["high"]) == ([1.5], [1], [2])
    assert [line["name"] for line in call(modules, "chart", f"lines({told}, false)")] == ["a1", "a2", "b1"]
    assert call(modules, "chart", "hasBand({low: [null, 1], high: [null, 1]})") is False
    assert call(modules, "chart", "hasBand({low: [null, 1], high: [null, 1.5]})") is True
    assert call(modules, "chart", "hasBand({})") is False
    assert call(modules, "chart", "summary({mean: [1, 7, 3, null]})") == {"last": 3, "most": 7}
    assert call(modules, "chart", "summary({mean: [null]})") is None


# A log of lines of two bytes each: `0`, `1`, … `9`, `0`, …; its end is at `size`.
FOLLOWED = """(async () => {
    const line = (at) => `${at % 10}\\n`;
    const text = (begin, end) => Array.from({ length: (end - begin) / 2 }, (_, at) => line(begin / 2 + at)).join("");
    let size = 20;
    const sizes = (begin, end) => ({ size_bytes: size, more_before: begin > 0, more_after: end < size });
    const part = (begin, end) => ({ begin, end, text: text(begin, end), ...sizes(begin, end) });
    const files = [{ file: "f", source: "commander", worker: null, alive: true, size_bytes: size }];
    const api = { async get(path, { before }) {
        if (path === "api/logs") return { files };
        const end = before ?? size;
        return part(Math.max(end - 10, 0), end);
    } };
    const view = await section({ api, go() {} }, { name: "a" }, { query: new URLSearchParams() });
    const shown = view.element[2];
    const log = (begin, end, more = {}) =>
        view.on.log({ file: "f", reset: false, begin, end, text: text(begin, end), ...more });
    const lines = () => shown.innerText.replaceAll("\\n", "");
    STEPS
})()"""


def followed(modules: Page, steps: str) -> Any:
    return call(modules, "run_logs", FOLLOWED.replace("STEPS", steps))


def test_a_followed_log_has_each_line_once(modules: Page) -> None:
    assert followed(modules, "log(10, 20); return lines();") == "56789", "it was loaded already"
    assert followed(modules, "log(20, 24); log(20, 24); return lines();") == "5678901"
    assert followed(modules, "size = 40; await log(16, 24); return lines();") == "56789", "overlap: the end, again"
    assert followed(modules, "size = 40; await log(30, 40); return lines();") == "56789", "a gap"
    assert followed(modules, "log(0, 4, { reset: true }); return lines();") == "01"
