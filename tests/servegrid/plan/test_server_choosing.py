"""The server of a campaign, and the plan for a server that lacks something."""

from __future__ import annotations

from typing import Any

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import GpuProfile
from servegrid.domain.server import ServerCapabilities, ServerChoice
from servegrid.domain.values import Channel
from servegrid.loadgen.choosing import choose_generator
from servegrid.plan.matrix import Plan
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import adapt_to_server, choose_server, own_server
from servegrid.servers import SERVERS
from servegrid.store.site import Site
from tasks.planning import plan

REMOTE = {"name": "remote", "url": "grpcs://triton.example:8001", "headers_file": "/etc/headers"}
PROVIDERS = {name: provider.OPTIONS for name, provider in SERVERS.items()}


@pytest.fixture
def cpu(site: Site) -> GpuProfile:
    return load_profile(site.profiles, "cpu")


def planned(site: Site, **selection: Any) -> Plan:
    options = {"formats": ("onnx",), "accelerators": ("none",), "generator": "client", **selection}
    return plan(SweepOptions.model_validate(options), site)[0].plan


def test_server_is_from_the_options_else_the_profile_else_embedded(cpu: GpuProfile) -> None:
    assert choose_server(SweepOptions(), cpu, PROVIDERS) == ServerChoice()
    theirs = cpu.model_copy(update={"server": ServerChoice.model_validate(REMOTE)})
    found = choose_server(SweepOptions(), theirs, PROVIDERS)
    assert (found.name, found.address) == ("remote", "triton.example:8001")
    assert (found.channel.tls, str(found.channel.headers_file)) == (True, "/etc/headers")
    assert choose_server(SweepOptions(url="grpc://elsewhere:1"), theirs, PROVIDERS).channel.tls is False
    assert choose_server(SweepOptions(server="embedded"), theirs, PROVIDERS) == ServerChoice()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"server": "remot"}, r"unknown server 'remot': did you mean 'remote'\?"),
        ({"server": "remote", "url": "http://a:1"}, r"url: .*grpc.*\(found 'http://a:1'\)"),
        ({"server": "remote"}, "remote needs url: give --url"),
        ({"url": "grpc://a:1"}, "embedded does not take url, which goes with remote"),
        ({"server": "docker", "headers_file": "h"}, "docker does not take headers_file, .* remote"),
        ({"server": "remote", "url": "grpc://a:1", "ca_file": "ca.pem"}, "begins with grpcs://"),
        ({"triton_release": "25.02"}, "embedded does not take triton_release, .* docker or remote"),
    ],
)
def test_options_that_a_provider_does_not_take_are_refused(
    cpu: GpuProfile, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        choose_server(SweepOptions.model_validate(options), cpu, PROVIDERS)


def test_perf_analyzer_is_not_used_where_secrets_would_be_on_its_command_line(site: Site) -> None:
    channel = Channel(tls=True)
    assert choose_generator(SweepOptions(), site, channel) == "client"
    with pytest.raises(UserError, match="--generator client"):
        choose_generator(SweepOptions(generator="perf_analyzer"), site, channel)


def test_tensors_travel_in_requests_without_shared_memory(site: Site) -> None:
    capabilities = ServerCapabilities(release="24.10", backends=("python",), shared_memory=False)
    found = adapt_to_server(planned(site), ServerChoice(), capabilities)
    assert len(found.cells) > 1
    assert {c.shared_memory for cell in found.cells for c in (cell.offline, cell.online)} == {"none"}


def test_protocol_that_the_server_lacks_is_refused(site: Site) -> None:
    both = ServerCapabilities(release="24.10", backends=("python",))
    grpc, choice = both.model_copy(update={"protocols": ("grpc",)}), ServerChoice.model_validate(REMOTE)
    http = planned(site, protocol="http")
    with pytest.raises(UserError, match=r"triton\.example.* http .*--protocol grpc"):
        adapt_to_server(http, choice, grpc)
    assert adapt_to_server(http, ServerChoice(), both).cells == http.cells
    assert adapt_to_server(planned(site), choice, grpc).cells


@pytest.mark.fault(
    "Inputs: profiles", "one line that names file and key", what="a profile with a server without its URL"
)
def test_profile_with_a_server_without_its_url(cpu: GpuProfile, happened: Any) -> None:
    profile = cpu.model_copy(update={"server": ServerChoice(name="remote")})
    with pytest.raises(UserError, match=r"gpu_profiles/cpu\.yaml, server: remote needs url") as caught:
        choose_server(SweepOptions(), profile, PROVIDERS)
    happened(caught.value)


def test_tune_and_compare_refuse_a_server_that_runs_already(site: Site) -> None:
    (cell, *_) = planned(site).cells
    with pytest.raises(UserError, match=r"gpu_profiles/cpu\.yaml.*server.*--profile"):
        own_server(ServerChoice.model_validate(REMOTE), cell)
    docker = ServerChoice(name="docker")
    assert own_server(docker, cell).triton_release == cell.product.triton_release


def test_server_without_model_control_runs_a_single_cell_as_loaded(site: Site) -> None:
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
