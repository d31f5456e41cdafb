"""A Prefect server behind TLS with a private authority, a password and a gateway that wants a header."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flows import local_server
from servegrid.domain.root import ROOT
from servegrid.host import proc
from servegrid.store.site import Site

HEADERS = json.dumps({"X-Gate": "open"})
LOGIN = "me:secret"
ONE = ("--model", "tiny_mlp", "--format", "onnx", "--precision", "fp32")


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Key and certificate of 127.0.0.1, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    return folder / "key.pem", folder / "certificate.pem"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Prefect's settings of a user of the server."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = write_certificate(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = ("--app-dir", str(Path(__file__).parent), "--factory", "prefect_gateway:create")
    tls = ("--ssl-keyfile", str(key), "--ssl-certfile", str(certificate))
    args = [sys.executable, "-m", "uvicorn", *place, "--host", "127.0.0.1", "--port", str(port), *tls]
    env = {
        **local_server.settings(Site.model_construct(home=folder)),
        "PREFECT_SERVER_API_AUTH_STRING": LOGIN,
    }
    given = {
        "PREFECT_API_URL": f"https://127.0.0.1:{port}/api",
        "PREFECT_API_SSL_CERT_FILE": str(certificate),
        "PREFECT_CLIENT_CUSTOM_HEADERS": HEADERS,
        "PREFECT_API_AUTH_STRING": LOGIN,
    }
    with proc.running(args, log_path=folder / "log", env=env) as process:
        deadline = time.monotonic() + 120
        while (found := ask(given)) and process.poll() is None:
            assert time.monotonic() < deadline, found
        assert process.poll() is None, proc.tail(folder / "log")
        yield given


ASK = "from flows import local_server; print(local_server.problem() or '', end='')"


def ask(settings: dict[str, str]) -> str:
    """What a command finds wrong with the API; a process of its own, as Prefect reads its settings once."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")} | settings
    command = [sys.executable, "-c", ASK]
    return subprocess.run(command, cwd=ROOT, env=env, text=True, check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    "setting", ["PREFECT_API_SSL_CERT_FILE", "PREFECT_CLIENT_CUSTOM_HEADERS", "PREFECT_API_AUTH_STRING"]
)
@pytest.mark.fault("Prefect behind TLS", "one line that names the setting", what="it lacks")
def test_a_missing_setting_is_named(setting: str, settings: dict[str, str], happened: Any) -> None:
    found = ask({name: value for name, value in settings.items() if name != setting})
    assert setting in found
    assert "\n" not in found
    happened(found)


@pytest.mark.fault(
    "Prefect behind TLS", "one line that names the setting", what="its certificate file is not there"
)
def test_a_certificate_file_that_is_not_there(settings: dict[str, str], happened: Any) -> None:
    found = ask(settings | {"PREFECT_API_SSL_CERT_FILE": "/no/such/file"})
    assert "PREFECT_API_SSL_CERT_FILE" in found
    happened(found)


def test_the_api_answers_with_all_settings(settings: dict[str, str]) -> None:
    assert ask(settings) == ""


def test_doctor_and_pools_use_the_settings(settings: dict[str, str], tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    env = {**kept, **settings, "SERVEGRID_HOME": str(tmp_path), "COLUMNS": "400"}
    servegrid = [sys.executable, "-c", "from servegrid.cli.main import main; main()"]
    options = {"cwd": ROOT, "env": env, "text": True, "capture_output": True}
    made = subprocess.run([*servegrid, "pools", "create"], **options)  # type: ignore[call-overload]
    assert made.returncode == 0, made.stderr
    found = subprocess.run([*servegrid, "doctor"], **options).stdout  # type: ignore[call-overload]
    assert settings["PREFECT_API_URL"] in found
    (fix,) = (line for line in found.splitlines() if line.startswith("to fix Prefect: "))
    assert "prefect worker start" in fix


@pytest.mark.check
@pytest.mark.fault("Prefect behind TLS", "the sweep passes; no line of a failed connection", what="a sweep")
def test_sweep(
    settings: dict[str, str], make_command_in: Callable[..., Any], plugins: Path, happened: Any
) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    command = make_command_in(kept | settings, plugins)
    small = ("--max-batch-size", "2", "--max-concurrency", "1", "--window-s", "0.3", "--request-count", "10")
    code, output = command.run("sweep", *ONE, *small)
    assert code == 0, output
    assert "certificate" not in output.lower() and "403" not in output, output
    happened("the sweep passes")
