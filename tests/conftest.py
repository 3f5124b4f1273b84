import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tests run in several processes; threads of their own would only fight each other."""
    torch.set_num_threads(1)
