"""Which server a campaign uses, and what its plan becomes on a server that can do less."""

from __future__ import annotations

from typing import Any

import pytest

from flows.planning import choose_generator, plan
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import GpuProfile
from servegrid.domain.server import ServerCapabilities, ServerChoice
from servegrid.domain.values import Channel
from servegrid.plan.matrix import Plan
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import adapt_to_server, choose_server, own_server
from servegrid.servers import SERVERS
from servegrid.store.site import Site

REMOTE = {"name": "remote", "url": "grpcs://triton.example:8001", "headers_file": "/etc/headers"}


@pytest.fixture
def cpu(site: Site) -> GpuProfile:
    return load_profile(site.profiles, "cpu")


def planned(site: Site, **selection: Any) -> Plan:
    options = {"formats": ("onnx",), "accelerators": ("none",), "generator": "client", **selection}
    return plan(SweepOptions.model_validate(options), site)[0].plan


def test_the_options_say_which_server_else_the_profile_else_the_embedded_one(cpu: GpuProfile) -> None:
    assert choose_server(SweepOptions(), cpu, SERVERS) == ServerChoice()
    theirs = cpu.model_copy(update={"server": ServerChoice.model_validate(REMOTE)})
    found = choose_server(SweepOptions(), theirs, SERVERS)
    assert (found.name, found.address) == ("remote", "triton.example:8001")
    assert (found.channel.tls, str(found.channel.headers_file)) == (True, "/etc/headers")
    assert choose_server(SweepOptions(url="grpc://elsewhere:1"), theirs, SERVERS).channel.tls is False
    assert choose_server(SweepOptions(server="embedded"), theirs, SERVERS) == ServerChoice()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"server": "remot"}, "server.*'remot'.*'remote'"),
        ({"server": "remote"}, "url.*grpc://HOST:PORT.*grpcs://HOST:PORT"),
        ({"server": "remote", "url": "http://a:1"}, "url.*grpc.*'http://a:1'"),
        ({"url": "grpc://a:1"}, "url.*remote"),
        (
            {"server": "remote", "url": "grpc://a:1", "ca_file": "ca.pem"},
            "ca_file.*grpcs://|grpcs://.*ca_file",
        ),
        ({"triton_release": "25.02"}, "embedded"),
        ({"server": "remote", "url": "grpc://a:1", "cores_awake": True}, "cores_awake.*embedded"),
        ({"server": "docker", "cores_awake": True}, "cores_awake.*embedded"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cpu: GpuProfile, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        choose_server(SweepOptions.model_validate(options), cpu, SERVERS)


@pytest.mark.parametrize("option", [None, True])
def test_cores_awake_is_a_field_of_every_cell(option: bool | None, site: Site, cpu: GpuProfile) -> None:
    assert choose_server(SweepOptions(cores_awake=option), cpu, SERVERS).cores_awake is bool(option)
    of_profile = cpu.model_copy(update={"server": ServerChoice(cores_awake=True)})
    assert choose_server(SweepOptions(cores_awake=option), of_profile, SERVERS).cores_awake
    cells = planned(site, cores_awake=option).cells
    assert {s.cores_awake for cell in cells for s in (cell.static, cell.dynamic)} == {bool(option)}


def test_perf_analyzer_is_not_used_where_secrets_would_be_on_its_command_line(site: Site) -> None:
    channel = Channel(tls=True)
    assert choose_generator(SweepOptions(), site, channel) == "client"
    with pytest.raises(UserError, match="--generator client"):
        choose_generator(SweepOptions(generator="perf_analyzer"), site, channel)


def test_tensors_travel_in_the_requests_where_no_memory_is_shared(site: Site) -> None:
    capabilities = ServerCapabilities(release="24.10", backends=("python",), shared_memory=False)
    found = adapt_to_server(planned(site), ServerChoice(), capabilities)
    assert len(found.cells) > 1
    assert {c.shared_memory for cell in found.cells for c in (cell.offline, cell.online)} == {"none"}


def test_http_is_refused_where_the_server_is_a_remote_one(site: Site) -> None:
    capabilities = ServerCapabilities(release="24.10", backends=("python",))
    http = planned(site, protocol="http")
    with pytest.raises(UserError, match=r"http.*--protocol grpc"):
        adapt_to_server(http, ServerChoice.model_validate(REMOTE), capabilities)
    assert adapt_to_server(http, ServerChoice(), capabilities).cells == http.cells
    assert adapt_to_server(planned(site), ServerChoice.model_validate(REMOTE), capabilities).cells


def test_tune_and_compare_want_a_server_of_their_own_and_say_how_to_get_one(site: Site) -> None:
    (cell, *_) = planned(site).cells
    with pytest.raises(UserError, match=r"gpu_profiles/cpu\.yaml.*server.*--profile"):
        own_server(ServerChoice.model_validate(REMOTE), cell)
    docker = ServerChoice(name="docker")
    assert own_server(docker, cell).triton_release == cell.product.triton_release
    assert own_server(ServerChoice(), cell) == ServerChoice()  # it is of the one release that it is


def test_a_server_that_loads_nothing_has_one_cell_of_a_model_measured_as_it_is(site: Site) -> None:
    choice = ServerChoice.model_validate(REMOTE)
    capabilities = ServerCapabilities(
        release="24.10", backends=("python",), loads=False, loaded=("bert_large_qa",)
    )
    one = planned(site, precisions=("fp16",))
    (cell,) = adapt_to_server(one, choice, capabilities).cells
    assert cell.static == cell.dynamic == one.cells[0].dynamic
    all_ = planned(site)
    several = adapt_to_server(all_, choice, capabilities)
    assert not several.cells
    reasons = [e.reason for e in several.excluded if e.cell in all_.cells]
    assert len(reasons) == len(all_.cells) > 1
    remedy = "its bert_large_qa is, by --format, --precision, --accelerator and --instances"
    assert all(remedy in reason for reason in reasons)
    (absent,) = adapt_to_server(
        one, choice, capabilities.model_copy(update={"loaded": ("another",)})
    ).excluded
    assert absent.reason == f"{choice.url} loads no models on request, and has no bert_large_qa loaded"
