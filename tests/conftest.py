import math
from collections import Counter

import pytest
import torch
from rich.console import Console
from rich.table import Table

from specdec.drafters import checking
from specdec.models import load_model

pytest_plugins = ["suite"]
checking.STRICT_ROUNDS = math.inf  # every q that a test's drafter declares is looked at as a whole


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU and a CUDA build of PyTorch; there is none here")


@pytest.fixture(autouse=True)
def _one_thread_for_tiny_tensors(request):
    """Threads cost more than they bring where a whole model fits into a cache line or two; the real model keeps what it may have."""
    if request.node.get_closest_marker("model"):
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def smollm2():
    """The real model as the library runs it by default."""
    return load_model("smollm2-135m")


@pytest.fixture(scope="session")
def smollm2_float32():
    return load_model("smollm2-135m", dtype=torch.float32)


def pytest_terminal_summary(terminalreporter):
    """The zoo as a table: what the grader was shown, and what it caught."""
    counts = Counter(
        (dict(report.user_properties)["zoo"], outcome)
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if "zoo" in dict(report.user_properties) and report.when == "call"
    )
    if counts:
        table = Table("kind", "cases", "caught", "missed", title="The zoo, its fast part")
        for kind in dict.fromkeys(kind for kind, _ in counts):
            caught, missed = counts[kind, "passed"], counts[kind, "failed"]
            table.add_row(kind, str(caught + missed), str(caught), str(missed))
        terminalreporter.write_line("")
        Console(file=terminalreporter._tw._file, width=100).print(table)
