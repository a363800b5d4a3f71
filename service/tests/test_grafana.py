"""docs/operations: the dashboard shows what is exported, and the alert rules ask for nothing else."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from spanmq.worker.measures import Measures

OPERATIONS = Path(__file__).parents[2] / "docs/operations"
DASHBOARD: dict[str, Any] = json.loads((OPERATIONS / "grafana.json").read_text("utf-8"))
ALERTS: dict[str, Any] = yaml.safe_load((OPERATIONS / "alerts.yml").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SUFFIXES = {"counter": "_total", "histogram": "_bucket"}


def names_of(families: Iterable[Metric]) -> set[str]:
    """Return the names by which Prometheus knows samples; of a histogram the one that tells most."""
    return {
        family.name + SUFFIXES.get(family.type, "")
        for family in families
        if not family.name.endswith("_created")
    }


def test_dashboard_shows_every_metric_and_no_other(http: httpx.Client) -> None:
    text = http.get("/metrics").text
    exported = names_of(text_string_to_metric_families(text)) | names_of(Measures().registry.collect())
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    shown = set(re.findall(r"\bspanmq_\w+", " ".join(queries)))
    assert exported - shown == set(), "each metric has a panel in docs/operations/grafana.json"
    assert shown - exported == set()
    choices = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    assert set(re.findall(r"\bspanmq_\w+", " ".join(choices))) <= exported


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_alert_rules_ask_for_metrics_that_are_exported() -> None:
    reference = (OPERATIONS.parent / "reference/metrics.md").read_text("utf-8")
    page = (OPERATIONS / "monitoring.md").read_text("utf-8")
    [group] = ALERTS["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) > 5
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"].keys() == {"summary"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["expr"].count("(") == rule["expr"].count(")")
        names = set(re.findall(r"\bspanmq_\w+", rule["expr"]))
        assert names
        assert {name for name in names if f"`{name}`" not in reference} == set(), rule["alert"]
        assert f"| `{rule['alert']}` |" in page
