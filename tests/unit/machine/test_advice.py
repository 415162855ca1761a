"""Every piece of advice at its threshold, and none for a machine without problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.machine.advice import LOADER_BYTES_PER_GPU, examine
from mgpubench.machine.gpu_advice import Advice
from mgpubench.machine.host import SharedMemory
from mgpubench.machine.system import Interface, Survey, System, TorchBuild

MakeMachine = Callable[..., Machine]
GB = 2**30

LOOPBACK = Interface(name="lo", is_up=True, speed_mbit_per_s=None)

SYSTEM = System(
    os="Linux-6.1",
    cpu_model="CPU Y",
    cores=16,
    physical_cores=8,
    usable_cores=16,
    affinity=tuple(range(16)),
    numa_nodes=1,
    governor="performance",
    is_virtual=False,
    load_average_1min=0.2,
    memory_bytes=64 * GB,
    memory_available_bytes=60 * GB,
    memory_limit_bytes=None,
    shared_memory=SharedMemory(32 * GB, 32 * GB, is_writable=True),
    open_files_soft=65536,
    open_files_hard=None,
    cxx_compiler="g++",
    interfaces=(LOOPBACK,),
    packages={"torchvision": "0.29.1"},
    torchvision_needs="",
    gpu_state=(),
    gpu_topology="",
    gpu_processes=(),
)
BUILD = TorchBuild(
    git_version="abc",
    config="PyTorch built with",
    cudnn_version=92400,
    nccl_version="2.30.7",
    cuda_architectures=("sm_75", "sm_80", "sm_100a", "compute_120"),
    backends=("gloo", "nccl"),
    without_peer_access=(),
)
STATE = {
    "index": "1",
    "uuid": "GPU-1",
    "power.limit": "700.00 W",
    "power.default_limit": "700.00 W",
    "memory.used": "1 MiB",
    "clocks_event_reasons.active": "0x0000000000000001",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
}


@pytest.fixture
def survey(machine: MakeMachine) -> Survey:
    """Two equal GPUs, and no problem."""
    return Survey(
        system=SYSTEM,
        machine=machine(2),
        build=BUILD,
        torch_error="",
        environment={},
    )


def with_system(survey: Survey, **changes: Any) -> Survey:
    return replace(survey, system=replace(SYSTEM, **changes))


def with_build(survey: Survey, **changes: Any) -> Survey:
    return replace(survey, build=replace(BUILD, **changes))


def the_only(survey: Survey) -> Advice:
    (advice,) = examine(survey)
    assert advice.remedy
    return advice


def test_a_machine_without_problems_gets_no_advice(survey: Survey) -> None:
    assert examine(survey) == []
    assert examine(with_system(survey, gpu_state=(STATE,))) == []


AT_THE_LIMIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"usable_cores": 16}, {"usable_cores": 15}, "fewer-cores"),
    ({"load_average_1min": 12.0}, {"load_average_1min": 12.1}, "busy"),
    ({"load_average_1min": None}, {"load_average_1min": 19.0}, "busy"),
    ({"governor": ""}, {"governor": "powersave"}, "governor"),
    ({"memory_available_bytes": 4 * GB}, {"memory_available_bytes": 4 * GB - 1}, "little-memory"),
    ({"open_files_soft": 1024}, {"open_files_soft": 1023}, "few-files"),
    ({"open_files_soft": None}, {"open_files_soft": 256}, "few-files"),
    ({"cxx_compiler": "clang++"}, {"cxx_compiler": ""}, "no-compiler"),
    ({"is_virtual": None}, {"is_virtual": True}, "virtual"),
    ({}, {"interfaces": ()}, "no-loopback"),
    ({}, {"interfaces": (replace(LOOPBACK, is_up=False),)}, "no-loopback"),
    ({}, {"shared_memory": None}, "no-shm"),
    ({}, {"shared_memory": SharedMemory(GB, GB, is_writable=False)}, "no-shm"),
    (
        {"shared_memory": SharedMemory(GB, 2 * LOADER_BYTES_PER_GPU, is_writable=True)},
        {"shared_memory": SharedMemory(GB, 2 * LOADER_BYTES_PER_GPU - 1, is_writable=True)},
        "small-shm",
    ),
    ({}, {"packages": {}}, "no-torchvision"),
    ({}, {"gpu_state": (STATE,), "gpu_processes": ("GPU-1",)}, "busy-gpu"),
    *(
        ({}, {"gpu_state": ({**STATE, name: value},)}, code)
        for name, value, code in (
            ("memory.used", "2048 MiB", "busy-gpu"),
            ("clocks_event_reasons.active", "0x0000000000000008", "throttled"),
            ("power.limit", "500.00 W", "power-limit"),
            ("pcie.link.width.current", "8", "narrow-link"),
        )
    ),
]


@pytest.mark.parametrize(("fine", "changes", "code"), AT_THE_LIMIT)
def test_advice_begins_at_its_threshold(
    survey: Survey, fine: dict[str, Any], changes: dict[str, Any], code: str
) -> None:
    assert examine(with_system(survey, **fine)) == []
    assert the_only(with_system(survey, **changes)).code == code


def test_small_shared_memory_is_shown_with_its_size_and_what_is_needed(survey: Survey) -> None:
    """A container has 64 MB; 2 GPUs need 2 x 4 workers x 2 batches of 64 x 3 x 224 x 224 bytes."""
    small = SharedMemory(64 * 2**20, 60 * 2**20, is_writable=True)
    advice = the_only(with_system(survey, shared_memory=small))
    assert "/dev/shm has 60 MB free of 64 MB" in advice.message
    assert "keep up to 147 MB there" in advice.message
    assert "--shm-size" in advice.remedy


def test_few_cores_are_measured_by_the_gpus(survey: Survey, machine: MakeMachine) -> None:
    assert examine(replace(survey, machine=machine(4))) == []
    advice = the_only(replace(survey, machine=machine(5)))
    assert advice.message.startswith("16 cores for 5 GPUs")


def test_a_single_gpu_gets_advice(survey: Survey, machine: MakeMachine) -> None:
    assert the_only(replace(survey, machine=machine(1))).code == "one-gpu"


def test_gpus_of_different_models_are_named(survey: Survey, machine: MakeMachine) -> None:
    found = machine(2)
    mixed = replace(found, gpus=(found.gpus[0], replace(found.gpus[1], name="NVIDIA Z")))
    assert "NVIDIA X, NVIDIA Z" in the_only(replace(survey, machine=mixed)).message


@pytest.mark.parametrize(
    ("capability", "is_built"),
    [
        *[((7, 5), True), ((8, 9), True), ((7, 0), False), ((9, 0), False), ((12, 1), True)],
        *[((10, 0), True), ((10, 3), False)],
    ],
)
def test_a_gpu_that_torch_is_not_built_for_is_named(
    survey: Survey, machine: MakeMachine, capability: tuple[int, int], is_built: bool
) -> None:
    """sm_75 serves 7.5 and up within 7, sm_80 all of 8, sm_100a 10.0 only; PTX what is newer."""
    codes = {a.code for a in examine(replace(survey, machine=machine(2, capability)))}
    assert codes == (set() if is_built else {"old-build"})


def test_missing_peer_access_names_a_pair(survey: Survey) -> None:
    advice = the_only(with_build(survey, without_peer_access=((0, 1), (1, 0))))
    assert "GPU 0 cannot reach the memory of GPU 1 (so for 2 of 2 directions)" in advice.message


def test_missing_nccl_gets_advice(survey: Survey) -> None:
    assert the_only(with_build(survey, backends=("gloo",))).code == "no-nccl"


TOO_OLD = "The NVIDIA driver on your system is too old"


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"cuda_version": ""}, "built without CUDA"),
        ({"cuda_visible_devices": "7"}, "CUDA_VISIBLE_DEVICES=7 may hide"),
        ({"driver_version": "450.80", "cuda_reason": TOO_OLD}, "The driver is 450.80: update it"),
        (
            {
                "driver_version": "450.80",
                "cuda_reason": TOO_OLD,
                "cuda_visible_devices": "0",  # as Slurm always sets it
            },
            "The driver is 450.80: update it",
        ),
        ({"driver_version": "450.80"}, "nvidia-smi and dmesg may say more"),
        ({}, "Install NVIDIA's driver"),
    ],
)
def test_the_remedy_for_no_gpu_knows_the_reason(
    survey: Survey, machine: MakeMachine, changes: dict[str, str], remedy: str
) -> None:
    found = machine(0, **{"cuda_version": "13.0", **changes})
    advice = the_only(replace(survey, machine=found))
    assert advice.code == "no-gpu"
    assert found.cuda_reason in advice.message
    assert remedy in advice.remedy


@pytest.mark.parametrize("name", [name for name in STATE if name not in ("index", "uuid")])
@pytest.mark.parametrize("value", [None, "", "unknown words"])
def test_what_nvidia_smi_does_not_know_gets_no_advice(
    survey: Survey, name: str, value: str | None
) -> None:
    state = {key: text for key, text in STATE.items() if key != name}
    if value is not None:
        state[name] = value
    assert examine(with_system(survey, gpu_state=(state,))) == []


def test_hidden_gpus_get_no_advice(survey: Survey) -> None:
    state = {**STATE, "uuid": "GPU-7", "power.limit": "100.00 W"}
    assert examine(with_system(survey, gpu_state=(state,), gpu_processes=("GPU-7",))) == []


def test_a_torch_that_cannot_be_imported_is_the_first_advice(survey: Survey) -> None:
    without = replace(
        survey, machine=None, build=None, torch_error="torch cannot be imported: no module"
    )
    assert the_only(without) == Advice(
        "no-torch",
        "torch cannot be imported: no module",
        "Install torch and its torchvision; `python -c 'import torch'` must work.",
    )


@pytest.mark.parametrize(("needed", "fits"), [("2.14.1", True), ("", True), ("2.13.0", False)])
def test_a_torchvision_of_another_torch_gets_advice(
    survey: Survey, machine: MakeMachine, needed: str, fits: bool
) -> None:
    found = replace(
        with_system(survey, torchvision_needs=needed),
        machine=machine(2, torch_version="2.14.1+cu130", torchvision_version="0.29.1"),
    )
    assert (examine(found) == []) is fits
    if not fits:
        assert the_only(found).message.startswith(
            "torchvision 0.29.1 was built for torch 2.13.0, and torch is 2.14.1+cu130"
        )


def test_equal_things_of_several_gpus_are_one_piece_of_advice(survey: Survey) -> None:
    states = [{**STATE, "index": n, "uuid": f"GPU-{n}", "power.limit": "500.00 W"} for n in "01"]
    advice = the_only(with_system(survey, gpu_state=tuple(states)))
    assert advice.message == "GPU 0, GPU 1: limited to 500 of 700 W"


def test_gpus_have_the_numbers_that_torch_gives_them(survey: Survey) -> None:
    """CUDA_VISIBLE_DEVICES may begin with the fourth, and CUDA may sort them otherwise."""
    state = {**STATE, "index": "3", "uuid": "GPU-0", "power.limit": "500.00 W"}
    advice = the_only(with_system(survey, gpu_state=(state,)))
    assert advice.message == "GPU 0: limited to 500 of 700 W"


def test_a_gpu_that_is_busy_gets_advice_once(survey: Survey) -> None:
    state = {**STATE, "memory.used": "30720 MiB"}
    hidden_process = with_system(survey, gpu_state=(state,))
    assert the_only(hidden_process).message == "memory is in use: 30.0 GB of GPU 1"
    both = with_system(survey, gpu_state=(state,), gpu_processes=("GPU-1",))
    assert the_only(both).message == "processes compute on GPU 1"


def test_a_number_of_threads_that_is_ignored_gets_no_advice(survey: Survey) -> None:
    assert examine(replace(survey, environment={"OMP_NUM_THREADS": "abc"})) == []
    assert the_only(replace(survey, environment={"OMP_NUM_THREADS": "4"})).code == "variable"


def test_the_remedy_for_few_files_knows_the_hard_limit(survey: Survey) -> None:
    soft = with_system(survey, open_files_soft=256, open_files_hard=65536)
    assert the_only(soft).remedy == "ulimit -n 4096"
    hard = with_system(survey, open_files_soft=256, open_files_hard=256)
    assert "hard limit" in the_only(hard).remedy


@pytest.mark.parametrize("value", ["1", "INFO"])
@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG"])
def test_variables_that_cost_time_are_named(survey: Survey, name: str, value: str) -> None:
    advice = the_only(replace(survey, environment={name: value}))
    assert advice.message.startswith(f"{name}={value} ")
    assert advice.remedy == f"unset {name}"
    assert examine(replace(survey, environment={name: "0", "NCCL_ALGO": "Ring"})) == []
