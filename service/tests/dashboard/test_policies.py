"""The pages of policies: what is shown, what is changed, and what is refused."""

from service.tests.dashboard.conftest import Person, rows

from spanmq.model.policy import SETTING_WORDS

POLICY = "select spanmq.get_policy('{}')::text"


def test_list_finds_queues_by_a_part_of_their_names(keeper_once: Person) -> None:
    text = keeper_once.get("/policies", find="ORD").text
    assert "/queue/policy?queue=orders" in text
    assert "invoices" not in text
    assert "No queue matches" in keeper_once.get("/policies", find="zzz").text


def test_every_setting_has_words(keeper_database: str) -> None:
    [(policy,)] = rows(keeper_database, "select spanmq.get_policy('orders')")
    assert set(policy) == set(SETTING_WORDS)


def test_settings_are_changed_and_the_others_stay(keeper: Person, filled: str) -> None:
    [(before,)] = rows(filled, "select spanmq.get_policy('orders')")
    done = keeper.post(
        "/queue/policy?queue=orders",
        **{
            "shown-max_attempts": "2",
            "setting-max_attempts": "7",
            "shown-ordered": "true",
            "setting-ordered": "false",
            "shown-backoff_base": "1",
            "setting-backoff_base": "1",
        },
    )
    assert done.headers["location"] == "/queue/policy?queue=orders&done=changed&n=2"
    assert "Changed: 2 settings." in keeper.get(done.headers["location"]).text
    [(after,)] = rows(filled, "select spanmq.get_policy('orders')")
    assert after == {**before, "max_attempts": 7, "ordered": False}


def test_form_as_it_is_shown_changes_nothing(keeper_once: Person, keeper_database: str) -> None:
    [(before,)] = rows(keeper_database, POLICY.format("orders"))
    page = keeper_once.get("/queue/policy", queue="orders").text
    fields: dict[str, str] = {}
    for part in page.split('<input type="hidden" name="shown-')[1:]:
        name, value = part.split('"')[0], part.split('value="')[1].split('"')[0]
        fields |= {f"shown-{name}": value, f"setting-{name}": value}
    assert len(fields) > 10
    done = keeper_once.post("/queue/policy?queue=orders", **fields)
    assert done.headers["location"].endswith("n=0")
    assert rows(keeper_database, POLICY.format("orders")) == [(before,)]


def test_what_another_changed_meanwhile_stays(keeper: Person, filled: str) -> None:
    rows(filled, """select spanmq.set_policy('orders', '{"max_attempts": 9}')""")
    done = keeper.post(
        "/queue/policy?queue=orders",
        **{
            "shown-max_attempts": "2",
            "setting-max_attempts": "2",
            "shown-lease": "30",
            "setting-lease": "60",
        },
    )
    assert done.headers["location"].endswith("n=1")
    [(policy,)] = rows(filled, "select spanmq.get_policy('orders')")
    assert (policy["max_attempts"], policy["lease"]) == (9, 60)


def test_empty_field_gives_the_default_back(keeper: Person, filled: str) -> None:
    keeper.post("/queue/policy?queue=orders", **{"shown-max_attempts": "2", "setting-max_attempts": ""})
    assert rows(filled, "select spanmq.get_policy('orders')->'max_attempts'") == [(25,)]


def test_page_of_a_queue_says_how_far_back_it_can_be_replayed(keeper: Person, filled: str) -> None:
    rows(filled, "select spanmq.set_policy('orders', '{\"keep\": \"7 days\"}')")
    text = keeper.get("/queue/storage", queue="orders").text
    assert "The log has all messages since" in text
    assert "are kept only by the policy" in text
