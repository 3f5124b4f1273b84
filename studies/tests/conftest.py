import pytest


@pytest.fixture(autouse=True, scope="module")
def reports_are_coarse(coarse_pictures: None) -> None:
    """Most of these tests write a report and read its text."""
