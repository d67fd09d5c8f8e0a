"""The watch page and the playground in a browser, with a service and a simulated base station."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from urllib.request import Request, urlopen

import numpy as np
import pytest

import idleband as ib
import idleband.service as service_package
from idleband.service.client import Client
from idleband.simulation.users_loop import USER_CURVES
from idleband.simulation.users_run import start_run
from tests.service.chromium import TIMEOUT, Tab, find_browser, open_tab

pytestmark = pytest.mark.skipif(find_browser() is None, reason="Chromium is not installed")

WIDE, PHONE = 1280, 360
ROW = "#rows tr:nth-child(3)"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service with a simulated base station."""
    data = tmp_path_factory.mktemp("service")
    command = [sys.executable, "-m", "idleband", "serve", "--policy", "mp-ucb", "--channels", "10", "--users", "5"]
    command += ["--dimension", "8", "--data", str(data), "--station", "S1", "--pace", "10", "--port", "0"]
    busy = np.random.default_rng(1).random((200, 12)) < 0.4
    ib.Trace.from_arrays(busy=busy, slot_s=0.5).save(data / "band.parquet")
    command += ["--trace", str(data / "band.parquet")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        timer = Timer(TIMEOUT, process.kill)  # ends the wait below if the service does not start
        timer.start()
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with Client(url, patience=TIMEOUT) as client:
                client.status()
            timer.cancel()
            yield url
        finally:
            timer.cancel()
            process.terminate()
            assert process.wait(timeout=TIMEOUT) == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with open_tab(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture
def page(browser: Tab) -> Iterator[Tab]:
    """A tab; after the test it must not have logged an error."""
    browser.call("Page.navigate", url="about:blank")  # a changed fragment alone would not load the page again
    browser.errors.clear()
    yield browser
    browser.value("0")  # reads everything that was logged before
    assert browser.errors == []


def assert_fits_phone(page: Tab, *tables: str) -> None:
    """Neither the page nor one of the tables is wider than the window."""
    assert page.value("document.documentElement.scrollWidth") == page.value("innerWidth") == PHONE
    for table in tables:
        assert page.value(f"document.querySelector({table!r}).scrollWidth") <= page.value(
            f"document.querySelector({table!r}).clientWidth"
        ), table


def open_watch(page: Tab, url: str, width: int = WIDE) -> None:
    page.open(url, width)
    page.until("document.querySelector('#state').textContent === 'Live'")
    page.until("document.querySelectorAll('#rows tr.now').length === 5")


# --- the watch page --------------------------------------------------------------------------------------------------


def test_watch_follows_the_allocator(service: str, page: Tab) -> None:
    open_watch(page, f"{service}/")
    for part in ("#slot", "#rows", "#totals", "#assigned-by", "#strip-note"):
        before = page.text(part)
        page.until(f"document.querySelector({part!r}).textContent !== {before!r}")
    page.until("document.querySelectorAll('#chart path.line[d^=M]').length === 3")


def test_watch_shows_names_and_indices_from_zero(service: str, page: Tab) -> None:
    """The names are those of the station's scenario."""
    open_watch(page, f"{service}/")
    rows = page.value("[...document.querySelectorAll('#rows th')].map((one) => one.textContent).join()")
    assert rows == ",".join(f"ch{k + 1} {k}" for k in range(10))


def test_watch_shows_channel_names(service: str, page: Tab) -> None:
    names = ["north", "east", "south", "west"]
    settings = {"name": "named", "policy": "mp-random", "channels": 4, "users": 2, "channel_names": names}
    request = Request(f"{service}/v1/allocators", json.dumps(settings).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT) as response:
        assert response.status == 200
    with Client(service, "named") as client:
        assigned = client.decide().channels
    page.open(f"{service}/?name=named", WIDE)
    page.until("document.querySelectorAll('#rows tr.now').length === 2")
    rows = page.value("[...document.querySelectorAll('#rows th')].map((one) => one.textContent).join()")
    assert rows == "north 0,east 1,south 2,west 3"
    assert page.text("#assigned") == ", ".join(names[k] for k in sorted(assigned))
    assert (
        page.value("document.querySelectorAll('#rows button')[1].getAttribute('aria-label')") == "Vacate channel east"
    )
    page.click("#explain-last")
    page.until("document.querySelectorAll('#terms tr').length === 4")
    assert names[assigned[0]] in page.text("#why")
    assert names[assigned[0]] in page.text("#terms")


def test_watch_with_many_named_channels_fits_a_phone(service: str, page: Tab) -> None:
    names = [f"{704.6 + 0.18 * k:.2f} MHz" for k in range(50)]
    settings = {"name": "many", "policy": "mp-random", "channels": 50, "users": 10, "channel_names": names}
    request = Request(f"{service}/v1/allocators", json.dumps(settings).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT) as response:
        assert response.status == 200
    with Client(service, "many") as client:
        client.decide()
    page.open(f"{service}/?name=many", PHONE)
    page.until("document.querySelector('#range').textContent === '704.60 MHz to 708.92 MHz (25 of 50)'")
    assert_fits_phone(page)


def test_watch_explains_slots_of_the_strip(service: str, page: Tab) -> None:
    """One slot is selected with the mouse, the one before it with the keyboard."""
    open_watch(page, f"{service}/")
    page.until("Number(document.querySelector('#slot').textContent.replaceAll(',', '')) >= 20")  # slots to click on
    page.until("document.querySelector('#strip-note').textContent.startsWith('Slots')")
    page.click("#strip-canvas", across=0.9)
    page.until("!document.querySelector('#terms-box').hidden")
    slot = int(page.text("#why-title").rpartition(" ")[2].replace(",", ""))
    assert page.text("#why").startswith(f"Slot {slot}: ")
    assert page.value("document.querySelectorAll('#terms tr').length") == 10
    assert "mean reward" in page.text("#terms-note")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)  # the page moves under a pointer that stays
    page.value("document.querySelector('#strip').focus()")
    page.press("ArrowLeft")
    page.press("Enter")
    page.until(f"document.querySelector('#why').textContent.startsWith('Slot {slot - 1}:')")
    page.click("#follow")
    page.until("document.querySelector('#terms-box').hidden")


def test_watch_vacates_and_restores_a_channel(service: str, page: Tab) -> None:
    open_watch(page, f"{service}/")
    with Client(service) as client:
        for vacated in (True, False):
            page.click(f"{ROW} button")
            page.until(f"document.querySelector('{ROW}').textContent.includes('vacated') === {str(vacated).lower()}")
            assert client.status()["channel"][2]["vacated"] is vacated


def test_watch_fits_a_phone(service: str, page: Tab) -> None:
    open_watch(page, f"{service}/?name=main", PHONE)
    page.click("#explain-last")
    page.until("document.querySelectorAll('#terms tr').length === 10")
    assert_fits_phone(page, "#channels", "#terms-scroll")


def test_watch_lists_allocators_when_the_name_is_unknown(service: str, page: Tab) -> None:
    page.open(f"{service}/?name=nope", WIDE)
    page.until("document.querySelector('#error a')")
    assert page.text("#error").startswith("There is no allocator named nope. Existing allocators: main")
    assert page.text("#state") == "Not connected"
    page.click("#error a")
    page.until("document.querySelector('#state')?.textContent === 'Live'")


# --- the playground --------------------------------------------------------------------------------------------------

POLICIES = "policy=mp-random&policy=mp-ucb:L=2"  # quick to compile


def open_playground(page: Tab, url: str, width: int = WIDE) -> None:
    page.open(url, width)
    page.until("!document.querySelector('#run').disabled")


def run_to_the_end(page: Tab) -> None:
    page.click("#run")
    page.until("document.querySelector('#status').textContent.startsWith('Done')")
    assert page.text("#error") == ""


def test_playground_shows_rewards_and_paired_differences(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#scenario=S2&users=3&slots=500&replications=2&{POLICIES}")
    assert page.text("#status").startswith("Press Run")  # a link fills the form and does not start a run
    assert page.value("document.querySelectorAll('.policy').length") == 2
    assert page.value("document.querySelector('.changed input').value") == "2"
    run_to_the_end(page)
    assert page.text("#curves-title") == "Reward per slot"
    for line in ("s0", "s1"):
        assert page.value(f"document.querySelector('#chart > svg .line.{line}').getAttribute('d')").count("L") > 40
        assert page.value(f"document.querySelector('#chart > svg .band.{line}').getAttribute('d')").endswith("Z")
    assert page.text("#results-difference") == "Minus mp-ucb L=2"  # the better policy is the reference by default
    assert page.value("[...document.querySelectorAll('#results th')].map((one) => one.textContent).join()") == (
        "mp-random,mp-ucb L=2"
    )
    assert page.text("#results tr:first-child td:nth-child(3)").startswith("−")
    assert page.value("document.querySelectorAll('#difference-chart > svg .line[d^=M]').length") == 1

    page.fill("#reference", "mp-random")
    assert page.text("#difference-title") == "Reward per slot minus that of mp-random"
    assert not page.text("#results tr:last-child td:nth-child(3)").startswith("−")

    # The y axis is chosen for the lines. Bands over two replications are wider and are cut off.
    page.value("plot = document.querySelector('#chart .band').ownerSVGElement")
    lines = "[...document.querySelectorAll('#chart > svg .line')]"
    assert page.value(f"Math.max(...{lines}.map((one) => one.getBBox().height)) / plot.height.baseVal.value") > 0.4
    assert page.value("getComputedStyle(plot).overflow") == "hidden"

    for view, title in (
        ("static", "Regret against the best fixed channels"),
        ("paper-static", "R(t) / (M ln t), best fixed channels"),
    ):
        page.fill("#show", view)
        assert page.text("#curves-title") == title
        assert page.value("document.querySelector('#difference-box').hidden")
        assert f"show={view}" in page.value("location.hash")


def test_playground_marks_invalid_fields_with_one_line(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#{POLICIES}")
    for field, value, line in (
        ("users", "11", "Users: must be a whole number from 1 to 10."),
        ("channels", "51", "Channels: must be a whole number from 1 to 50."),
        ("p01", "0.1, 0.2", "p01: has 2 values; must be one value for all channels, or 10 values, one per channel."),
        ("p10", "0.1, 1.2", "p10: 1.2 must be a number above 0 and at most 1."),
        ("p10", "", "p10: must be one value for all channels, or 10 values, one per channel."),
    ):
        valid = page.value(f"document.querySelector('#{field}').value")
        page.fill(f"#{field}", value)
        page.click("#run")
        page.until(f"document.querySelector('#error').textContent === {line!r}")
        assert page.value("document.querySelector('[aria-invalid=true]').id") == field
        page.fill(f"#{field}", valid)
        assert page.value("document.querySelector('[aria-invalid=true]')") is None
        assert page.text("#error") == ""
    assert page.text("#status").startswith("Press Run")


def test_playground_runs_with_edited_channels(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#slots=100&replications=1&{POLICIES}")
    page.fill("#channels", "12")
    assert page.value("document.querySelector('#p01').value.split(',').length") == 12  # continued from the start
    page.fill("#channels", "3")
    assert page.value("document.querySelector('#p01').value") == "0.01, 0.01, 0.02"
    page.fill("#p10", "0.3")
    page.fill("#users", "2")
    link = page.value("location.href")
    assert "channels=3&users=2&p01=0.01,0.01,0.02&p10=0.3" in link
    run_to_the_end(page)
    assert page.text("#run-of").startswith("Scenario S1 with other channels (K = 3), linear perturbation, 2 users")

    page.call("Page.navigate", url="about:blank")
    open_playground(page, link)
    assert page.value(
        "['channels', 'users', 'p01', 'p10'].map((id) => document.getElementById(id).value).join('; ')"
    ) == ("3; 2; 0.01, 0.01, 0.02; 0.3")
    page.click("#restore")
    assert page.value("document.querySelector('#channels').value") == "10"
    assert "channels" not in page.value("location.hash")


def test_playground_runs_with_other_worlds(service: str, page: Tab) -> None:
    """Dwell times, shocks, regime change and sensing errors are in the link where they differ from the defaults."""
    open_playground(page, f"{service}/playground#slots=100&replications=1&{POLICIES}")
    assert "dwell" not in page.value("location.hash")
    for field, value in (("dwell", "bursty"), ("shocks", "on"), ("errors", "0.1"), ("noise", "0.2")):
        page.fill(f"#{field}", value)
    assert "many short" in page.text("#dwell-note").lower()
    link = page.value("location.href")
    assert "dwell=bursty&shocks=on&errors=0.1&noise=0.2" in link
    run_to_the_end(page)
    assert page.text("#run-of").startswith(
        "Scenario S1, bursty dwell times, common shocks, sensing errors 0.1, linear perturbation with noise 0.2, 5"
    )
    page.call("Page.navigate", url="about:blank")
    open_playground(page, link)
    assert page.value(
        "['dwell', 'shocks', 'change', 'errors', 'noise'].map((id) => document.getElementById(id).value).join()"
    ) == ("bursty,on,off,0.1,0.2")
    for field, value, line in (
        ("change", "on", "Regime change: needs geometric dwell times."),
        ("errors", "0.5", "Sensing errors: must be a number from 0 to 0.3."),
        ("noise", "0.6", "Noise: must be a number from 0 to 0.5."),
    ):
        valid = page.value(f"document.querySelector('#{field}').value")
        page.fill(f"#{field}", value)
        page.click("#run")
        page.until(f"document.querySelector('#error').textContent === {line!r}")
        page.fill(f"#{field}", valid)
    page.fill("#dwell", "geometric")
    page.fill("#change", "on")
    run_to_the_end(page)
    assert page.text("#run-of").startswith("Scenario S1, common shocks, regime change in slot 51, sensing errors 0.1,")


def test_playground_replays_a_trace(service: str, page: Tab) -> None:
    """A trace defines the channels and the number of slots; the fields of a preset come back with the preset."""
    open_playground(page, f"{service}/playground#users=9&replications=2&dwell=bursty&{POLICIES}")
    page.fill("#scenario", "band")
    values = "['channels', 'users', 'slots', 'perturbation'].map((id) => document.getElementById(id).value).join()"
    assert page.value(values) == "12,5,200,none"
    assert page.text("#scenario-note").startswith("Replay of a recorded trace: 12 channels, 200 slots of 0.5 s.")
    assert page.value("document.querySelector('#channels').disabled")
    assert page.value("document.querySelectorAll('[data-preset-only]:not([hidden])').length") == 0
    assert "dwell" not in page.value("location.hash")
    page.fill("#users", "11")
    page.fill("#errors", "0.1")
    link = page.value("location.href")
    run_to_the_end(page)
    assert page.text("#run-of") == (
        "Replay of band, sensing errors 0.1, no perturbation, 11 users, 200 slots, 2 replications, seed 0"
    )
    assert "block bootstrap over 20 blocks of one recording; other recordings may differ" in page.text("#reading")
    assert "significant" not in page.text("#difference-note")
    page.fill("#users", "13")
    page.click("#run")
    page.until("document.querySelector('#error').textContent === 'Users: must be a whole number from 1 to 12.'")

    page.call("Page.navigate", url="about:blank")
    open_playground(page, link, PHONE)
    assert page.value(values) == "12,11,200,none"
    assert_fits_phone(page)
    page.fill("#scenario", "S1")
    assert page.value(values) == "10,5,20000,linear"
    page.call("Page.navigate", url="about:blank")
    open_playground(page, link.replace("users=11", "users=11&p01=0.1"))
    assert page.text("#link-error") == "Unknown in the link: p01 = 0.1 (not used with a trace)."


def test_playground_keeps_the_previous_run_until_the_next_has_a_point(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#slots=100&replications=1&{POLICIES}")
    run_to_the_end(page)
    shown = "Scenario S1, linear perturbation, 5 users, 100 slots, 1 replication, seed 0"
    page.fill("#slots", "1000000")
    page.fill("#replications", "10")
    assert page.text("#run-of") == shown
    page.value("document.querySelector('#run').click(), document.querySelector('#stop').click()")
    page.until("document.querySelector('#status').textContent.startsWith('Stopped after 0 slots.')")
    assert page.text("#run-of") == shown
    assert page.text("#results-at") == "After 100 slots"

    # Stopped by the page itself at the first point, however fast the run is.
    page.value(
        "new MutationObserver(() => document.querySelector('#stop').click())"
        ".observe(document.querySelector('#run-of'), {childList: true, characterData: true, subtree: true}), 0"
    )
    page.click("#run")
    page.until("/^Stopped after [1-9][0-9,]* slot/.test(document.querySelector('#status').textContent)")
    assert page.text("#run-of") == shown.replace("100 slots, 1 replication,", "1,000,000 slots, 10 replications,")


ALONE = "coordination=none&slots=300&replications=2&policy=user-random&policy=mp-random"


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile the policies here: a worker has the lowest priority, and the page does not wait for ever."""
    scenario = ib.scenario("S1", perturbation="none", users={"coordination": "none"})
    for name in ("user-random", "mp-random"):
        start_run(scenario, ib.policy(name), 10, 0, 0).to(10)


def move_to(page: Tab, slot: int) -> None:
    page.fill("#users-slot", str(slot))
    page.until(f"document.querySelector('#users-at').textContent.startsWith('Slot {slot}:')")


@pytest.mark.usefixtures("compiled")
def test_playground_shows_users_without_a_base_station(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#{ALONE}")
    assert page.value("document.querySelectorAll('[data-users-only][hidden]').length") == 0
    run_to_the_end(page)
    assert page.text("#users-title") == "Users and their channels"
    assert page.text("#run-of") == (
        "Scenario S1, no perturbation, 5 users without a base station, collision lost, observes sensing, 300 slots,"
        " 2 replications, seed 0"
    )
    assert page.text("#users-range").startswith("All slots of the first replication;")

    # The slots play by themselves after Run.
    page.until("/^Slot [1-9][0-9]/.test(document.querySelector('#users-at').textContent)")

    # Slot 40 in words, in the figures and in the table is that of the run.
    move_to(page, 40)
    scenario = ib.scenario("S1", perturbation="none", users={"coordination": "none"})
    run, reference = (start_run(scenario, ib.policy(name), 300, 0, 0) for name in ("user-random", "mp-random"))
    run.to(40)
    reference.to(40)
    picks = run.tally.picks
    assert page.value(
        "[...document.querySelectorAll('#users-rows td:nth-child(2)')].map((one) => one.textContent)"
    ) == [f"ch{k + 1}{', collision' if (picks == k).sum() > 1 else ''}" for k in picks]
    tiles = page.value(
        "Object.fromEntries([...document.querySelectorAll('#users-tiles > div')]"
        ".map((one) => [...one.children].slice(0, 2).map((part) => part.textContent)))"
    )
    now = dict(zip(USER_CURVES, run.tally.now, strict=False))
    assert tiles == {
        "Reward per slot": f"{now['reward'] / 40:.2f}",
        "With a base station": f"{reference.tally.now[0] / 40:.2f}",
        "Upper bound": "4.07",
        "Collisions between users": f"{now['user_collisions']:.0f}",
        "Slots since the last collision": f"{40 - now['last_collision']:.0f}",
        "Switches of channels": f"{now['switches']:.0f}",
        "Messages": "0",
    }
    drawn = "document.querySelector('#users-canvas').toDataURL().length"
    assert page.value(drawn) > 5000

    # The slider takes the keyboard; playing goes on to the last slot.
    page.value("document.querySelector('#users-slot').focus()")
    page.press("ArrowLeft")
    page.until("document.querySelector('#users-at').textContent.startsWith('Slot 39:')")
    assert page.value("document.querySelector('#users-slot').getAttribute('aria-valuetext')").startswith("Slot 39:")
    page.fill("#users-speed", "1000")
    page.click("#users-play")
    page.until("document.querySelector('#users-at').textContent.startsWith('Slot 300:')")
    page.until("document.querySelector('#users-play').textContent === 'Play'")

    page.fill("#show", "collisions")
    assert page.text("#curves-title") == "Collisions between users"
    assert page.value("document.querySelectorAll('#chart > svg .line[d^=M]').length") == 1
    assert (
        page.value("[...document.querySelectorAll('#collided th')].map((one) => one.textContent).join()")
        == "user-random"
    )
    assert page.text("#collided td:nth-child(5)") == "0"

    # With a base station the page is as before.
    page.fill("#coordination", "station")
    assert page.value("[...document.querySelectorAll('.pick select')].map((one) => one.value).join()") == (
        "rca-m,mp-lucb,mp-belief-lucb"
    )
    page.call("Page.navigate", url="about:blank")
    open_playground(page, f"{service}/playground#slots=100&replications=1&{POLICIES}")
    assert page.value("document.querySelectorAll('[data-users-only]:not([hidden])').length") == 0
    run_to_the_end(page)
    assert page.value("document.querySelector('#users-box').hidden")


@pytest.mark.usefixtures("compiled")
def test_playground_finds_the_next_collision_between_users(service: str, page: Tab) -> None:
    """The strip is clicked on, too; settings of users are in the link."""
    open_playground(page, f"{service}/playground#{ALONE}")
    for field, value in (("collision", "split"), ("bits", "1"), ("stay", "60"), ("absence", "20")):
        page.fill(f"#{field}", value)
    link = page.value("location.href")
    assert "coordination=none" in link
    assert "collision=split&bits=1&stay=60&absence=20" in link
    page.call("Page.navigate", url="about:blank")
    open_playground(page, link)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    run_to_the_end(page)
    page.call("Emulation.setEmulatedMedia", features=[])
    assert page.text("#users-at").startswith("Slot 1:")  # no motion before Play is pressed
    assert page.text("#users-play") == "Play"
    users = {"coordination": "none", "collision": "split", "control_bits": 1, "mean_stay": 60, "mean_absence": 20}
    run = start_run(ib.scenario("S1", perturbation="none", users=users), ib.policy("user-random"), 300, 0, 0)
    run.to(100)
    before = run.tally.now[5]
    while run.tally.now[5] == before:
        run.to(run.at + 1)
    move_to(page, 100)
    page.click("#users-next")
    page.until(f"document.querySelector('#users-at').textContent.startsWith('Slot {run.at}:')")
    assert page.text("#users-said") == f"Next collision in slot {run.at}."
    assert "collide on" in page.text("#users-at")
    present = int(run.presence.present.sum())
    assert page.text("#users-tiles > div:last-child").startswith(f"Users present{present} of 5")
    page.click("#users-canvas", across=0.5)
    page.until(f"!document.querySelector('#users-at').textContent.startsWith('Slot {run.at}:')")


def test_playground_refuses_settings_that_users_do_not_allow(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#coordination=none&slots=100&policy=mctopm&observes=rewards")
    page.click("#run")
    page.until(
        "document.querySelector('#error').textContent === "
        "\"Scenario.users.observes = 'rewards': policy mctopm needs 'sensing' or 'collisions'.\""
    )
    assert "400 (Bad Request)" in page.errors.pop()  # logged by the browser
    page.fill("#observes", "sensing")
    page.fill("#stay", "50")
    page.click("#run")
    page.until(
        "document.querySelector('#error').textContent === 'Mean absence: must be given, because the other mean is.'"
    )

    page.call("Page.navigate", url="about:blank")
    open_playground(page, f"{service}/playground#policy=mctopm&policy=mp-ucb&bits=2")
    assert page.text("#link-error") == (
        "Unknown in the link: bits = 2 (not used with a base station); policy = mctopm (only without a base station)."
    )


@pytest.mark.usefixtures("compiled")
def test_playground_replays_a_trace_without_a_base_station_on_a_phone(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#scenario=band&{ALONE.replace('slots=300&', '')}", PHONE)
    page.value("for (const one of document.querySelectorAll('details')) one.open = true")
    run_to_the_end(page)
    assert page.text("#run-of").startswith("Replay of band, no perturbation, 5 users without a base station,")
    move_to(page, 150)
    assert "Upper bound" not in page.text("#users-tiles")  # there is none for a recording
    assert page.text("#users-rows td").startswith("channel ")
    assert_fits_phone(page, ".users-table", "#users-box")


def test_playground_explains_contexts_and_fits_a_phone(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground?#slots=100&replications=2&{POLICIES}", PHONE)
    page.value("for (const one of document.querySelectorAll('details')) one.open = true")
    explanation = page.text("#about-contexts")
    for word in ("context", "perturbation", "none", "linear", "quadratic", "cosine"):
        assert word in explanation
    assert_fits_phone(page)


def test_playground_reports_unknown_parts_of_a_link(service: str, page: Tab) -> None:
    open_playground(page, f"{service}/playground#policy=nope&users=99")
    assert page.text("#link-error") == (
        "Unknown in the link: policy = nope. Users: must be a whole number from 1 to 10."
    )
    assert page.value("document.querySelector('[aria-invalid=true]').id") == "users"
    assert page.value("document.querySelectorAll('.policy').length") == 3


def test_pages_do_not_use_retired_terms() -> None:
    """Texts of the pages use the terms of the glossary."""
    folder = Path(service_package.__file__).parent / "page"
    text = "\n".join(path.read_text().lower() for path in folder.glob("*.*"))
    for word in ("handed out", "spoilt", "a second", "a slot,"):
        assert word not in text, word
