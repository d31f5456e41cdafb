"""Which card this process uses. NVML's and CUDA's answers are made up where the name says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servegrid.domain.errors import UserError
from servegrid.host import cards, gpu_monitor
from servegrid.host.cards import card, card_name, card_uuid, first_of_cuda, gpu_names, using
from servegrid.host.environment import host

UUIDS = ("GPU-b", "GPU-c", "GPU-a")
"""Of the fake driver, in NVML's order."""


def fake_driver(uuids: tuple[str, ...]) -> SimpleNamespace:
    return SimpleNamespace(
        nvmlDeviceGetCount=lambda: len(uuids),
        nvmlDeviceGetHandleByIndex=lambda index: uuids[index],
        nvmlDeviceGetHandleByUUID=str,
        nvmlDeviceGetUUID=str,
        nvmlDeviceGetName=lambda handle: f"NVIDIA H200 {handle}",
        nvmlSystemGetDriverVersion=lambda: "580",
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
    )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts a fake driver of these cards in the place of NVML; CUDA shows them in alphabetical order."""

    def put(*uuids: str) -> None:
        @contextmanager
        def nvml() -> Iterator[Any]:
            yield fake_driver(uuids)

        def first(visible: str | None, order: str | None) -> str | None:
            shown = sorted(uuids)
            number = 0 if visible is None else int(visible.partition(",")[0])
            return shown[number] if number < len(shown) else None

        monkeypatch.setattr(cards, "nvml", nvml)
        monkeypatch.setattr(cards, "first_of_cuda", first)
        cards._card_uuid.cache_clear()

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield put
    cards._card_uuid.cache_clear()


@pytest.mark.parametrize(
    ("visible", "used"),
    [
        (None, "GPU-a"),
        ("0", "GPU-a"),
        ("2,0", "GPU-c"),
        ("7", None),
        ("GPU-b", "GPU-b"),
        ("GPU-c,GPU-b", "GPU-c"),
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
    ],
)
def test_a_number_is_cudas_not_nvmls_with_a_fake_driver(
    driver: Any, monkeypatch: pytest.MonkeyPatch, visible: str | None, used: str | None
) -> None:
    driver(*UUIDS)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert card_uuid() == used
    assert card_name() == (used and f"NVIDIA H200 {used}")
    assert bool(card()) == (used is not None)
    assert len(gpu_names()) == 3


def test_the_only_card_needs_no_cuda_with_a_fake_driver(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver("GPU-x")
    monkeypatch.setattr(cards, "first_of_cuda", None)
    assert card_uuid() == "GPU-x"


def test_started_processes_see_the_one_card_that_is_used_with_a_fake_driver(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(*UUIDS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    with using("gpu"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"
        with using("gpu"):
            assert card_uuid() == "GPU-b"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,0"


def test_cells_of_the_cpu_have_no_card_with_a_fake_driver(driver: Any) -> None:
    driver(*UUIDS)
    with using("cpu"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        assert card_uuid() is None
        found = host()
        assert found.gpu == found.cpu
        assert found.driver is None
        with gpu_monitor.watching() as looks:
            pass
        assert looks == []
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_host_without_a_card_keeps_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu_names():
        pytest.skip("this host has a card")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for kind in ("cpu", "gpu"):
        with using(kind):  # type: ignore[arg-type]
            assert "CUDA_VISIBLE_DEVICES" not in os.environ


FAKE_CUDA = """
int cuInit(unsigned flags) { return CODE; }
int cuDeviceGet(int *device, int number) { *device = 7 + number; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = i;
    uuid[15] = device;
    return 0;
}
"""


@pytest.fixture
def fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts a fake CUDA library, whose cuInit returns a code, where a started program finds it."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler here")

    def make(code: int) -> None:
        source = tmp_path / "cuda.c"
        source.write_text(FAKE_CUDA.replace("CODE", str(code)))
        library = tmp_path / "libcuda.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        first_of_cuda.cache_clear()

    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    yield make
    first_of_cuda.cache_clear()


def test_a_fake_cuda_library_says_which_card_it_numbers_zero(fake_cuda: Any) -> None:
    fake_cuda(0)
    assert first_of_cuda("1", None) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e07"


def test_a_fake_cuda_library_without_a_visible_card_is_no_card(fake_cuda: Any) -> None:
    fake_cuda(100)
    assert first_of_cuda("1", None) is None


def test_another_error_of_a_fake_cuda_library_is_named(fake_cuda: Any) -> None:
    fake_cuda(999)
    with pytest.raises(UserError, match="999"):
        first_of_cuda("1", None)


def test_where_cuda_does_not_say_the_variable_and_the_remedy_are_named() -> None:
    if gpu_names():
        pytest.skip("this host has a card")
    with pytest.raises(UserError, match=r"CUDA_VISIBLE_DEVICES=1.*nvidia-smi -L"):
        first_of_cuda("1", None)


def test_the_host_has_its_cards_capability_and_driver() -> None:
    assert set(card()) == ({"compute_capability", "driver"} if gpu_names() else set())


@pytest.mark.gpu
def test_cuda_and_nvml_know_the_same_card() -> None:
    with cards.nvml() as pynvml:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        known = {str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles}
    assert first_of_cuda(os.environ.get("CUDA_VISIBLE_DEVICES"), None) in known
