"""Monitoring: alert rules, Prometheus, Grafana's dashboard and the runbook are consistent."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.counts.routes import router as counts_router
from app.forecasts.routes import router as forecasts_router
from tests.support.data import running_in_ci
from tests.support.services import running_service
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[1]
MONITORING = ROOT / "monitoring"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
DASHBOARD = json.loads((MONITORING / "grafana/dashboards/flowcast.json").read_text())
MONITORING_PAGE, RUNBOOK = (ROOT / "docs/operations.md").read_text().split("\n## Runbook\n")
SUFFIXES = ("_bucket", "_sum", "_count")

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]


def expressions() -> list[str]:
    """Return every expression of the dashboard, with a span in place of Grafana's variable."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    return [expression.replace("$__rate_interval", "5m") for expression in found]


def figures_in(*expressions: str) -> set[str]:
    """Return the names of Flowcast's metrics in expressions, those of histograms without suffixes."""
    names = set(re.findall(r"\bflowcast_\w+", " ".join(expressions)))
    for name, suffix in [(name, suffix) for name in names for suffix in SUFFIXES if name.endswith(suffix)]:
        names = names - {name} | {name.removesuffix(suffix)}
    return names


@pytest.fixture(scope="module")
def promtool() -> Promtool:
    """Return the path of promtool; skip the test if it is missing, or fail it in CI."""
    found = shutil.which("promtool")
    if found is None:
        missing = "promtool is not installed; Debian's package prometheus has it"
        if running_in_ci():
            pytest.fail(missing)
        pytest.skip(missing)

    def run(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [found, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False, **options
        )

    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the metrics of a service of two processes after a count, a read and a request without a key."""
    folder = tmp_path_factory.mktemp("watched")
    slot = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    count = {"link_id": "A", "slot_start": slot.isoformat(), "count": 5}
    options = ("--workers", "2", "--no-worker")
    with running_service(f"sqlite:///{folder}/flowcast.db", folder, *options, FLOWCAST_CLOCK="wall") as service:
        assert service.request("PUT", "/v1/links/A", {"zone": "UTC"})[0] == 201
        assert service.request("POST", "/v1/counts", {"counts": [count]})[0] == 200
        assert service.request("GET", "/v1/links/A/forecast")[0] == 200

        def all_counted() -> str | None:  # each process counts its answers half a second later at most
            values = service.metrics()
            counted = re.findall(r'^flowcast_requests_total\{.*route="/v1/.* 1\.0$', values, re.MULTILINE)
            return values if len(counted) == 3 else None

        return wait_until(all_counted, explain=service.metrics)


@pytest.fixture(scope="module")
def exposed(page: str) -> dict[str, str]:
    """Return the metrics of a service, with their types."""
    return dict(re.findall(r"^# TYPE (flowcast_\w+) (\w+)$", page, re.MULTILINE))


@pytest.mark.journey
class TestRules:
    def test_configuration_and_rules_are_sound(self, promtool):
        checked = promtool("check", "config", "prometheus.yml")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert f"{len(RULES)} rules found" in checked.stdout

    def test_every_alert_fires_when_it_must_and_only_then(self, promtool):
        tested = promtool("test", "rules", "alerts_test.yml")
        assert tested.returncode == 0, tested.stdout + tested.stderr

    def test_every_alert_is_seen_firing_and_silent(self):
        result: dict[str, set[bool]] = {name: set() for name in RULES}
        for test in yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]:
            for step in test["alert_rule_test"]:
                result[step["alertname"]].add(bool(step["exp_alerts"]))
        assert not [name for name, seen in result.items() if seen != {True, False}]

    @pytest.mark.parametrize("name", RULES)
    def test_every_alert_names_what_is_needed(self, name):
        rule = RULES[name]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"

    def test_every_alert_has_a_section_of_the_runbook_and_the_other_way_round(self):
        sections = re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]
        assert [section.splitlines()[0] for section in sections] == list(RULES)
        assert not [section for section in sections if "**Meaning.**" not in section or "**Do.**" not in section]

    def test_routes_are_ones_that_there_are(self):
        named = {
            route
            for expression in [*expressions(), *(rule["expr"] for rule in RULES.values())]
            for route in re.findall(r'route="([^"]+)"', expression)
        }
        routes = {route.path for router in (counts_router, forecasts_router) for route in router.routes}
        assert named
        assert named <= routes


@pytest.mark.journey
class TestFigures:
    def test_prometheus_finds_nothing_to_complain_of(self, promtool, page):
        checked = promtool("check", "metrics", input=page)
        assert checked.returncode == 0, checked.stdout + checked.stderr

    def test_every_metric_and_no_other_is_documented(self, exposed):
        documented = dict(re.findall(r"^\| `(flowcast_\w+)` \| (\w+) \|", MONITORING_PAGE, re.MULTILINE))
        assert documented == exposed

    def test_alerts_and_dashboard_use_only_figures_that_there_are(self, exposed):
        used = figures_in(*expressions(), *(rule["expr"] for rule in RULES.values()))
        assert len(used) > 20
        assert not used - exposed.keys()

    def test_the_dashboard_shows_every_figure(self, exposed):
        assert not exposed.keys() - figures_in(*expressions())

    def test_what_happened_was_counted_over_both_processes(self, page):
        labels = 'method="PUT",route="/v1/links/{link_id}",status="2xx"'
        assert f"flowcast_requests_total{{{labels}}} 1.0" in page
        assert f"flowcast_request_duration_seconds_count{{{labels}}} 1.0" in page
        assert 'flowcast_forecasts_degraded_total{reason="no_model"} 1.0' in page
        assert "flowcast_forecast_issue_duration_seconds_count 1.0" in page
        assert 'flowcast_ingest_lag_seconds_bucket{le="1800.0"} 0.0' in page  # over for 45 minutes at least
        assert 'flowcast_ingest_lag_seconds_bucket{le="7200.0"} 1.0' in page
        assert "flowcast_database_up 1.0" in page


class TestDashboard:
    @pytest.mark.journey
    def test_every_expression_can_be_read(self, promtool, tmp_path):
        rules = [{"record": f"panel:{i}", "expr": one} for i, one in enumerate(expressions())]
        assert rules
        file = tmp_path / "panels.yml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
        checked = promtool("check", "rules", str(file))
        assert checked.returncode == 0, checked.stdout + checked.stderr

    def test_its_address_stays_and_its_source_is_the_one_that_is_provisioned(self):
        assert DASHBOARD["uid"] == "flowcast"
        sources = yaml.safe_load((MONITORING / "grafana/provisioning/datasources/prometheus.yml").read_text())
        [source] = sources["datasources"]
        used = {part["datasource"]["uid"] for panel in DASHBOARD["panels"] for part in panel.get("targets", [])}
        assert used == {source["uid"]}

    def test_panels_have_numbers_of_their_own_and_do_not_overlap(self):
        assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
        taken = [
            (x, y)
            for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert max(x for x, _ in taken) < 24
        assert len(set(taken)) == len(taken)

    def test_files_lie_where_the_containers_look_for_them(self):
        services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        mounted, inside, _ = services["grafana"]["volumes"][0].split(":")
        provider = yaml.safe_load((MONITORING / "grafana/provisioning/dashboards/flowcast.yml").read_text())
        named = [
            provider["providers"][0]["options"]["path"],
            services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"],
            services["grafana"]["environment"]["GF_PATHS_PROVISIONING"],
        ]
        assert all((ROOT / mounted / Path(path).relative_to(inside)).exists() for path in named)
        mounted, inside, _ = services["prometheus"]["volumes"][0].split(":")
        [config] = [word.split("=")[1] for word in services["prometheus"]["command"] if "config.file" in word]
        assert (ROOT / mounted / Path(config).relative_to(inside)).exists()
        [scraped] = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
        assert set(scraped["dns_sd_configs"][0]["names"]) <= services.keys()
