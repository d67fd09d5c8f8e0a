"""The watch page and the playground in a real browser, before a real service with a simulated base station."""

import subprocess
import sys
from collections.abc import Iterator
from threading import Timer

import pytest

from idleband.service.client import Client
from tests.service.chromium import Tab, binary, tab

pytestmark = pytest.mark.skipif(binary() is None, reason="there is no Chromium on the PATH")

WIDE, PHONE = 1280, 360
COMPILED = 120.0  # seconds in which two policies are, by whoever comes first


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that lives."""
    data = tmp_path_factory.mktemp("service")
    command = [sys.executable, "-m", "idleband", "serve", "--policy", "mp-ucb", "--channels", "10", "--users", "5"]
    command += ["--dimension", "8", "--data", str(data), "--station", "S1", "--pace", "50", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        late = Timer(COMPILED, process.kill)  # a line that never comes would be waited for without end
        late.start()
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with Client(url, patience=60) as client:
                client.snapshot()
            late.cancel()
            yield url
        finally:
            late.cancel()
            process.terminate()
            assert process.wait(timeout=30) == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Tab) -> Iterator[Tab]:
    """A page in which nothing goes wrong."""
    browser.call(
        "Page.navigate", url="about:blank"
    )  # what the test before left is gone, a hash is not all that changes
    browser.errors.clear()
    yield browser
    browser.value("0")  # all that was logged before this is read with the answer
    assert browser.errors == []


def assert_fits(page: Tab) -> None:
    """Nothing is wider than the window: the page does not scroll sideways."""
    assert page.value("document.documentElement.scrollWidth") == page.value("innerWidth") == PHONE


def test_watch(service: str, page: Tab) -> None:
    with Client(service) as client:
        page.open(f"{service}/", WIDE)
        page.until("document.querySelector('#state').textContent === 'Live'")
        for place in ("#slot", "#rows", "#totals", "#handed-by", "#strip-note"):
            before = page.text(place)
            page.until(f"document.querySelector({place!r}).textContent !== {before!r}")
        page.until("document.querySelectorAll('#rows tr.now').length === 5")
        assert page.value("[...document.querySelectorAll('#rows th')].map((one) => one.textContent).join()") == (
            "1,2,3,4,5,6,7,8,9,10"
        )
        page.until("document.querySelectorAll('#chart path.line[d^=M]').length === 3")

        # A slot of the strip is explained: by the mouse, then an earlier one by the keys.
        page.until("document.querySelector('#strip-note').textContent.startsWith('Slots')")
        page.click("#strip-canvas", across=0.9)
        page.until("!document.querySelector('#terms-box').hidden")
        chosen = int(page.text("#why-title").rpartition(" ")[2].replace(",", ""))
        assert page.text("#why").startswith(f"Slot {chosen}: channels ")
        assert page.value("document.querySelectorAll('#terms tr').length") == 10
        assert "mean reward" in page.text("#terms-note")
        page.value("document.querySelector('#strip').focus()")
        page.press("ArrowLeft")
        page.press("Enter")
        page.until(f"document.querySelector('#why').textContent.startsWith('Slot {chosen - 1}:')")
        page.click("#follow")
        page.until("document.querySelector('#terms-box').hidden")

        # A channel is vacated and restored.
        page.click("#rows tr:nth-child(3) button")
        page.until("document.querySelector('#rows tr:nth-child(3)').textContent.includes('vacated')")
        assert client.snapshot()["channel"][2]["vacated"]
        page.click("#rows tr:nth-child(3) button")
        page.until("!document.querySelector('#rows tr:nth-child(3)').textContent.includes('vacated')")
        assert not client.snapshot()["channel"][2]["vacated"]

        page.open(f"{service}/?name=main", PHONE)
        page.until("document.querySelectorAll('#rows tr.now').length === 5")
        page.click("#explain-last")
        page.until("document.querySelectorAll('#terms tr').length === 10")
        assert_fits(page)


def test_no_such_allocator(service: str, page: Tab) -> None:
    page.open(f"{service}/?name=nope", WIDE)
    page.until("document.querySelector('#error a')")
    assert page.text("#error") == "There is no allocator named nope. Those there are: main."
    assert page.text("#state") == "Not connected"
    page.click("#error a")
    page.until("document.querySelector('#state')?.textContent === 'Live'")


def fill(page: Tab, selector: str, text: str) -> None:
    page.value(
        f"document.querySelector({selector!r}).value = {text!r},"
        f" document.querySelector({selector!r}).dispatchEvent(new Event('input', {{bubbles: true}}))"
    )


def test_playground(service: str, page: Tab) -> None:
    settings = "scenario=S2&users=3&slots=2000&replications=2&policy=mp-random&policy=mp-ucb:L=2&show=reward"
    page.open(f"{service}/playground#{settings}", WIDE)
    page.until("!document.querySelector('#run').disabled")
    # A link fills the form, and runs nothing.
    assert page.text("#status").startswith("Press Run")
    assert page.value("[...document.querySelectorAll('.policy')].length") == 2
    assert page.value("document.querySelector('.changed input').value") == "2"
    page.click("#run")
    page.until("document.querySelector('#status').textContent.startsWith('Done: 2,000 slots')", COMPILED)
    assert page.text("#error") == ""
    for line in ("s0", "s1"):
        points = page.value(f"document.querySelector('#chart > svg .line.{line}').getAttribute('d')").count("L")
        assert points > 50
        assert page.value(f"document.querySelector('#chart > svg .band.{line}').getAttribute('d')").endswith("Z")
    assert page.text("#results").startswith("mp-random")
    assert "mp-ucb L=2" in page.text("#results")

    # The axis is the lines', from zero at the least; bands over two replications are far wider, and cut off.
    assert not page.text("#chart text.y").startswith("−")
    page.value("plot = document.querySelector('#chart .band').ownerSVGElement")
    lines = "[...document.querySelectorAll('#chart > svg .line')]"
    assert page.value(f"Math.max(...{lines}.map((one) => one.getBBox().height)) / plot.height.baseVal.value") > 0.4
    assert page.value("getComputedStyle(plot).overflow") == "hidden"

    # A mistake is told in one line, and nothing runs; it is gone when it is put right.
    fill(page, "#users", "11")
    page.click("#run")
    page.until("document.querySelector('#error').textContent.startsWith('Users: must be')")
    assert page.value("document.querySelector('[aria-invalid=true]').id") == "users"
    fill(page, "#users", "4")
    assert page.value("document.querySelector('[aria-invalid=true]')") is None
    assert page.text("#error") == ""

    # What is shown is told of the run, not of the form; a run that is stopped before it has anything leaves it there.
    of = "Scenario S2, linear perturbation, 3 users, 2,000 slots, 2 replications, seed 0"
    fill(page, "#slots", "1000000")
    assert page.text("#run-of") == of
    page.value("document.querySelector('#run').click(), document.querySelector('#stop').click()")
    page.until("document.querySelector('#status').textContent.startsWith('Stopped after 0 slots.')")
    assert page.text("#run-of") == of
    assert page.text("#results-at") == "After 2,000 slots"
    page.click("#run")
    page.until(f"document.querySelector('#run-of').textContent !== {of!r}")
    page.click("#stop")
    page.until("/^Stopped after [1-9][0-9,]* slots/.test(document.querySelector('#status').textContent)")
    assert page.text("#run-of") == of.replace("3 users, 2,000", "4 users, 1,000,000")

    page.open(f"{service}/playground?", PHONE)
    page.until("!document.querySelector('#run').disabled")
    page.value("document.querySelector('.policy details').open = true")
    assert_fits(page)


def test_link_that_is_not_understood(service: str, page: Tab) -> None:
    page.open(f"{service}/playground#policy=nope&users=99", WIDE)
    page.until("!document.querySelector('#run').disabled")
    assert page.text("#link-error") == (
        "Not understood in the link: policy = nope. Users: must be a whole number from 1 to 10."
    )
    assert page.value("document.querySelector('[aria-invalid=true]').id") == "users"
    assert page.value("document.querySelectorAll('.policy').length") == 3
