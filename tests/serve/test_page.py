"""The page in a real Chromium, used as a person would."""

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn
from fastapi import FastAPI
from office import PATIENT, classifier

from countertrain.recourse.rendering import name_places
from countertrain.recourse.threshold import Threshold
from countertrain.serve.app import create_app

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; on Debian: apt-get install chromium")

TOKEN = "correct-horse-battery"


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of the app, listening in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(create_app(classifier().decider, baseline=classifier("bl").decider, limits=PATIENT)) as address:
        yield address


@pytest.fixture
def visit(browser: "playwright.Browser") -> Iterator[Callable[..., "playwright.Page"]]:
    """visit(address): a page that asks nobody but its own server and has no error in its script."""
    opened, strangers, errors = [], [], []

    def visit(address: str, width: int = 1280, height: int = 900) -> "playwright.Page":
        page = browser.new_page(viewport={"width": width, "height": height})
        opened.append(page)
        page.set_default_timeout(20_000)
        page.on("request", lambda request: strangers.append(request.url) if address not in request.url else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        return page

    yield visit
    for page in opened:
        page.close()
    assert not strangers
    assert not errors


def decided(page: "playwright.Page") -> str:
    """The decision, once there is one."""
    page.wait_for_selector("#sure:text-matches('sure$')")
    return page.inner_text("#decision")


def choose_refused(page: "playwright.Page") -> None:
    """The first example that was refused, once it is decided on."""
    page.select_option("#example", "1")
    page.wait_for_selector("#decision:text-is('refused')")


def choose_poor(page: "playwright.Page") -> None:
    """Somebody for whom no single number is enough."""
    choose_refused(page)
    field(page, "credit income").locator("input").first.fill("9000")
    field(page, "debt").locator("input").first.fill("15000")


def field(page: "playwright.Page", name: str) -> "playwright.Locator":
    return page.locator(".field").filter(has=page.locator(f"xpath=./label[starts-with(., '{name}')]"))


def show_options(page: "playwright.Page") -> "playwright.Locator":
    page.click("#ask")
    page.wait_for_selector("#results:not(.old) .option")
    return page.locator(".option")


def test_a_person_is_chosen_decided_on_and_gets_options_side_by_side(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    choose_refused(page)
    assert page.input_value("#target") == "0"
    options = show_options(page)
    assert 1 <= options.count() <= 3
    assert re.search(r"“granted”, \d\d\s% sure", options.first.inner_text())
    assert options.first.locator("mark").count() >= 1
    assert "→" in options.first.locator(".changes li").first.inner_text()
    assert "age" not in page.locator(".what").all_inner_texts()
    assert page.locator("#picture .real").count() > 50
    assert page.locator("#picture .spot").count() == options.count()
    look = "() => [...document.querySelectorAll('.option')].map(o => Math.round(o.getBoundingClientRect().top))"
    assert len(set(page.evaluate(look))) == 1  # all in one look: the page may still be scrolling


def test_reasons_stand_above_the_options(visit: Callable[..., "playwright.Page"], address: str) -> None:
    page = visit(address)
    choose_refused(page)
    show_options(page)
    reasons = page.locator("#reasons li")
    assert 1 <= reasons.count() <= 4
    assert "typical of granted" in reasons.first.inner_text()
    assert page.inner_text("#why-title") == "Why “refused”"


def test_numbers_are_told_with_their_places_among_people(visit: Callable[..., "playwright.Page"], address: str) -> None:
    page = visit(address)
    choose_refused(page)
    income = field(page, "credit income")
    told = {"1000": "in the lowest fifth", "30000": "in the middle", "99000": "in the highest fifth"}
    for typed, words in told.items():
        income.locator("input").first.fill(typed)
        assert words in income.inner_text()
    income.locator("summary").click()
    income.get_by_label("At most").fill("30000")
    assert income.locator("details .hint").inner_text() == "from the lowest fifth to the middle"
    income.get_by_label("At least").fill("29999")
    assert income.locator("details .hint").inner_text() == "within the middle"
    income.get_by_label("At least").fill("31000")
    assert income.locator("details .hint").inner_text() == ""
    income.get_by_label("At least").fill("")
    income.get_by_label("At most").fill("")
    choose_poor(page)
    with page.expect_response("**/explain") as answered:
        options = show_options(page)
    (answer,) = answered.value.json()["explanations"]
    changes = [change for option in answer["options"] for change in option["changes"]]
    expected = [name_places(*change["places"]) for change in changes if change["places"]]
    assert len(changes) > len(expected) > 0
    assert options.locator(".changes .where").all_inner_texts() == expected
    assert "past a third of them." in page.inner_text("#cost")


def test_a_value_that_makes_no_sense_is_said_beside_its_field_and_can_be_corrected(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    before = decided(page)
    own = field(page, "credit income").locator("input").first.input_value()
    for name, typed, words in (
        ("credit income", "9e99", "Must lie between"),
        ("age", "40.5", "Must be a whole number; got 40.5."),
        ("age", "", "Please fill this in."),
        ("debt", "e", "Please type a number."),
    ):
        box = field(page, name).locator("input").first
        old = box.input_value()
        box.press("Control+A")
        box.press_sequentially(typed) if typed else box.press("Delete")
        page.wait_for_selector(f".error:text('{words}')")
        assert box.get_attribute("aria-invalid") == "true"
        assert words in field(page, name).inner_text()
        assert page.is_disabled("#ask")
        box.press("Control+A")
        box.press("Delete")
        box.press_sequentially(old)
        page.wait_for_selector("#ask:enabled")
    assert field(page, "credit income").locator("input").first.input_value() == own
    assert decided(page) == before


def test_a_number_outside_the_bounds_is_taken_with_a_remark(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    choose_refused(page)
    field(page, "age").locator("input").first.fill("12")
    assert "outside the usual range, 18 to 100" in field(page, "age").inner_text()
    decided(page)
    assert "→" in show_options(page).first.inner_text()
    assert page.locator(".error:not(:empty)").count() == 0


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("free", [None, "job"])
def test_the_writing_of_the_picture_stays_within_it(
    visit: Callable[..., "playwright.Page"], address: str, width: int, free: str | None
) -> None:
    page = visit(address, width=width)
    (choose_refused if free else choose_poor)(page)
    if free:
        page.click("#fix-all")
        field(page, free).get_by_label("Fixed").uncheck()
    show_options(page)
    page.wait_for_selector("#picture text")
    look = """() => {
        const inside = document.querySelector("#picture svg").getBoundingClientRect();
        const texts = [...document.querySelectorAll("#picture svg text")].map((text) => text.getBoundingClientRect());
        return texts.map((box) => Math.min(box.left - inside.left, inside.right - box.right));
    }"""
    room = page.evaluate(look)
    assert len(room) > (5 if free else 8)
    assert min(room) >= 0


def test_what_is_fixed_stays_and_with_all_fixed_the_page_says_what_blocks(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    choose_refused(page)
    changed = show_options(page).first.locator(".what").first.inner_text()
    field(page, changed).get_by_label("Fixed").check()
    assert page.is_visible("#stale")
    page.click("#again")
    page.wait_for_selector("#results:not(.old)")
    assert changed not in page.locator(".option .what").all_inner_texts()
    page.click("#fix-all")
    page.click("#ask")
    page.wait_for_selector("#status:text('There is no way: that is proven for all that may change.')")
    assert "Blocked by" in page.inner_text("#options")


def test_a_limited_range_is_kept_and_an_impossible_one_is_said_beside_it(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    choose_refused(page)
    page.click("#fix-all")
    income = field(page, "credit income")
    income.get_by_label("Fixed").uncheck()
    income.locator("summary").click()
    income.get_by_label("At most").fill("-9000000")
    page.click("#ask")
    page.wait_for_selector(".error:text('Must have something in common with')")
    now = float(income.locator("input").first.input_value())
    income.get_by_label("At most").fill(str(now + 100))
    page.click("#ask")
    page.wait_for_selector("#results:not(.old) .option")
    after = page.locator("mark").all_inner_texts()
    assert re.search(r"Blocked by credit income \(kept between [\d,.-]+ and [\d,.]+ EUR, ", page.inner_text("#options"))
    assert all(float(text.split()[0].replace(",", "")) <= now + 100 for text in after)


def test_the_two_models_are_compared_by_a_switch_that_is_there_only_if_there_are_two(
    visit: Callable[..., "playwright.Page"], address: str, app: FastAPI
) -> None:
    page = visit(address)
    decided(page)
    page.get_by_label("age").first.fill("44")
    show_options(page)
    with page.expect_request("**/explain") as asked:
        page.get_by_text("Conventional", exact=True).click()
    assert asked.value.post_data_json["model"] == "baseline"
    page.wait_for_selector("#results:not(.old) .option")
    with served(app) as alone:
        page = visit(alone)
        decided(page)
        assert not page.is_visible("#models")


def test_all_can_be_done_from_the_keyboard_and_everything_has_a_label(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    decided(page)
    unlabelled = page.evaluate("[...document.querySelectorAll('input, select')].filter((e) => !e.labels.length).length")
    assert unlabelled == 0
    page.focus("#example")
    page.keyboard.press("ArrowDown")
    for _ in range(3):  # two buttons, then the first field
        page.keyboard.press("Tab")
    page.keyboard.type("5")
    assert page.evaluate("document.activeElement.id") == "f0"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Control+A")
    page.keyboard.type("51")
    page.wait_for_selector("#ask:enabled")
    page.keyboard.press("Enter")
    page.wait_for_selector("#results:not(.old) .option")
    assert page.evaluate("document.activeElement.id") == "results-title"


def test_on_a_phone_nothing_runs_over_the_edge(visit: Callable[..., "playwright.Page"], address: str) -> None:
    page = visit(address, width=360, height=740)
    decided(page)
    show_options(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_on_paper_there_are_the_person_the_decision_and_the_options_and_nothing_to_press(
    visit: Callable[..., "playwright.Page"], address: str
) -> None:
    page = visit(address)
    choose_refused(page)
    n_options = show_options(page).count()
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 672, "height": 1000})  # what A4 leaves between its margins
    assert page.locator(".field:visible").count() == page.locator(".field").count()
    assert page.is_visible("#decision")
    assert page.locator(".option:visible").count() == n_options
    assert not page.locator("button:visible, summary:visible, #picker:visible").count()
    assert page.evaluate("document.documentElement.scrollWidth") <= 672
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('aside')).position") == "static"


def test_with_more_than_two_classes_any_other_one_can_be_wanted(visit: Callable[..., "playwright.Page"]) -> None:
    with served(create_app(classifier(n_classes=3).decider, limits=PATIENT)) as address:
        page = visit(address)
        decision = decided(page)
        others = page.locator("#target option").all_inner_texts()
        assert sorted([*others, decision]) == ["granted", "maybe", "refused"]
        page.select_option("#target", label=others[1])
        show_options(page)
        assert page.inner_text("#results-title") == f"From “{decision}” to “{others[1]}”"


def test_a_service_with_a_token_is_opened_with_it(visit: Callable[..., "playwright.Page"]) -> None:
    with served(create_app(classifier().decider, token=TOKEN, limits=PATIENT)) as address:
        page = visit(address)
        page.get_by_label("This service needs a token").fill("wrong")
        page.get_by_text("Open").click()
        page.wait_for_selector("#trouble:text('The token is wrong.')")
        page.get_by_label("This service needs a token").fill(TOKEN)
        page.get_by_text("Open").click()
        assert decided(page) in ("granted", "refused")
        assert not page.is_visible("#trouble")


def test_who_has_what_people_want_is_not_told_how_to_lose_it(visit: Callable[..., "playwright.Page"]) -> None:
    with served(create_app(classifier().decider, target="granted", limits=PATIENT)) as address:
        page = visit(address)
        page.wait_for_selector("#decision:text-is('refused')")  # the first example is somebody who has to ask
        assert page.is_hidden("#content")
        assert page.inner_text("#needed") == ""
        assert show_options(page).count() >= 1
        page.select_option("#example", "0")
        page.wait_for_selector("#decision:text-is('granted')")
        assert page.is_visible("#content")
        assert page.is_disabled("#ask")
        assert page.is_hidden("#wish")
        assert page.is_hidden("#results")


def test_the_probability_that_is_needed_is_said(visit: Callable[..., "playwright.Page"]) -> None:
    decider = replace(classifier().decider.want("granted"), threshold=Threshold(0, 0.9))
    with served(create_app(decider, limits=PATIENT)) as address:
        page = visit(address)
        decided(page)
        assert re.fullmatch(r"“granted” needs 90\s%\.", page.inner_text("#needed"))
