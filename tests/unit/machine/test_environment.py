"""The environment variables that decide a number: which ones, and their digest."""

from __future__ import annotations

import random

import pytest

from mgpubench.machine.environment import (
    environment_digest,
    recorded_environment,
    waiting_on_cpu,
)

FAMILIES = (
    *("ATEN", "CUDA", "CUDNN", "CUBLAS", "CUBLASLT", "DNNL", "ONEDNN", "GOMP", "OMP", "KMP", "MKL"),
    *("OPENBLAS", "NCCL", "GLOO", "TORCH", "TORCHDYNAMO", "TORCHINDUCTOR", "PYTORCH", "TRITON"),
    *("MALLOC", "TCMALLOC"),
)

DECIDING = (
    *(f"{family}_ANYTHING" for family in FAMILIES),
    *("MALLOC_CONF", "GLIBC_TUNABLES", "LD_PRELOAD"),
    *("PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONOPTIMIZE"),
    # Some that are known by name.
    *("ATEN_CPU_CAPABILITY", "CUDA_LAUNCH_BLOCKING", "CUDNN_FRONTEND_HEUR_MODE", "NCCL_ALGO"),
    *("PYTORCH_CUDA_ALLOC_CONF", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"),
    *("MKL_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "MALLOC_ARENA_MAX"),
    *("CUBLAS_WORKSPACE_CONFIG", "ONEDNN_MAX_CPU_ISA", "NCCL_DEBUG_SUBSYS"),
)

OTHERS = (
    # Places, versions and logs do not change the speed.
    *("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR"),
    *("NCCL_TOPO_FILE", "NCCL_DEBUG_FILE", "CUDA_VERSION", "NCCL_VERSION", "TORCH_LOGS"),
    *("GLOO_LOG_LEVEL", "TORCH_CUDA_ARCH_LIST", "NCCL_DEBUG"),
    # Which GPUs is in the fingerprint of the machine.
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE"),
    # mgpubench sets these itself, or has a column for them.
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "KMP_DUPLICATE_LIB_OK"),
    # Identities, and what is none of ours.
    *("NCCL_COMM_ID", "NCCL_HOSTID", "HOME", "USER", "PATH", "PYTHONPATH", "RANK", "MASTER_ADDR"),
    *("MY_OMP_PROC_BIND", "TORCHELASTIC_RUN_ID", "CUDA", "XMALLOC_CONF", "LD_LIBRARY_PATH"),
    *("PYTHONMALLOCSTATS", "MALLOC"),
)


@pytest.mark.parametrize("name", DECIDING)
def test_a_variable_that_decides_a_number_is_recorded(name: str) -> None:
    assert recorded_environment({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", OTHERS)
def test_other_variables_are_not_recorded(name: str) -> None:
    assert recorded_environment({name: "1"}) == {}


def test_what_is_recorded_is_in_alphabetical_order() -> None:
    names = ("NCCL_ALGO", "ATEN_CPU_CAPABILITY", "MKL_DEBUG_CPU_TYPE")
    assert list(recorded_environment(dict.fromkeys(names, "1"))) == sorted(names)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc.so.2"),
        ("/opt/me/liba.so:/opt/libb.so.1", "liba.so:libb.so.1"),
        ("/opt/me/liba.so /opt/libb.so.1", "liba.so libb.so.1"),
        ("libtcmalloc.so", "libtcmalloc.so"),
        ("", ""),
    ],
)
def test_preloaded_libraries_are_recorded_without_their_folders(value: str, recorded: str) -> None:
    """Paths are private, and a copy in another folder is the same library."""
    assert recorded_environment({"LD_PRELOAD": value}) == {"LD_PRELOAD": recorded}


def test_no_variable_keeps_the_path_of_a_file() -> None:
    conf = {"MALLOC_CONF": "prof:true,prof_prefix:/opt/me/heap"}
    assert recorded_environment(conf) == {"MALLOC_CONF": "prof:true,prof_prefix:heap"}


# The digest.


def digest(variables: dict[str, str], *varied: str) -> str:
    return environment_digest(recorded_environment(variables), varied)


VARIABLES = {"ATEN_CPU_CAPABILITY": "default", "NCCL_ALGO": "Ring", "MALLOC_CONF": "a:b"}


def test_no_variable_is_none_and_not_unknown() -> None:
    """Unknown is an empty cell, which is a group of its own."""
    assert digest({}) == digest({"HOME": "/x", "OMP_NUM_THREADS": "3"}) == "none"


def test_a_digest_is_8_hex_digits() -> None:
    assert len(digest(VARIABLES)) == 8
    assert int(digest(VARIABLES), 16) >= 0


def test_a_digest_depends_on_every_name_and_value() -> None:
    others = [
        {**VARIABLES, "NCCL_ALGO": "Tree"},
        {**VARIABLES, "MKL_DYNAMIC": "1"},
        {name: value for name, value in VARIABLES.items() if name != "NCCL_ALGO"},
        {},
    ]
    assert len({digest(VARIABLES), *map(digest, others)}) == 5


def test_a_digest_does_not_depend_on_the_order_or_on_what_is_not_recorded() -> None:
    names = random.Random(0).sample(sorted(VARIABLES), 3)
    shuffled = {name: VARIABLES[name] for name in [*names, *VARIABLES]}
    assert digest(shuffled) == digest(VARIABLES)
    assert digest({**VARIABLES, "HOME": "/x", "CUDA_HOME": "/y"}) == digest(VARIABLES)


def test_what_the_variants_set_is_not_in_the_digest() -> None:
    """Otherwise a session with variants would never meet one that sets it outside."""
    without = {name: value for name, value in VARIABLES.items() if name != "NCCL_ALGO"}
    assert digest(VARIABLES, "NCCL_ALGO") == digest(without)
    assert digest(VARIABLES, *VARIABLES) == "none"
    assert digest(VARIABLES, "OMP_NUM_THREADS", "UNSET") == digest(VARIABLES)


def test_a_value_that_is_not_utf8_has_a_digest() -> None:
    assert len(digest({"NCCL_ALGO": "caf\udce9"})) == 8


@pytest.mark.parametrize(
    ("environ", "may_have_gpu", "expected"),
    [
        ({}, False, {"GOMP_SPINCOUNT": "1000"}),
        ({"OMP_NUM_THREADS": "2"}, False, {"GOMP_SPINCOUNT": "1000"}),
        ({}, True, {}),
        ({"GOMP_SPINCOUNT": "7"}, False, {}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, False, {}),
    ],
)
def test_threads_wait_in_our_way_on_a_machine_without_gpus_unless_the_user_decides(
    environ: dict[str, str], may_have_gpu: bool, expected: dict[str, str]
) -> None:
    waiting = waiting_on_cpu(environ, may_have_gpu=may_have_gpu)
    assert waiting == expected
    assert recorded_environment(waiting) == waiting
