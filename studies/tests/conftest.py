import pytest
from tests.cli.conftest import program  # noqa: F401  fixtures of the library's tests
from tests.conftest import coarse_pictures  # noqa: F401


@pytest.fixture(autouse=True, scope="module")
def reports_are_coarse(coarse_pictures: None) -> None:  # noqa: F811
    """Most of these tests write a report and read its text."""
