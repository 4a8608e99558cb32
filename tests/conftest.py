import pytest
import torch

from specdec.models import load_model


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU and a CUDA build of PyTorch; there is none here")


@pytest.fixture(autouse=True)
def _one_thread_for_tiny_tensors(request):
    """Threads cost more than they bring where a whole model fits into a cache line or two; the real model keeps them."""
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
