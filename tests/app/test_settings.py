import pytest
from pydantic import ValidationError

from app.settings import Settings


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:"])
def test_a_database_that_no_two_connections_would_share_is_refused(url):
    with pytest.raises(ValidationError, match="must name a file"):
        Settings(database_url=url)


def test_a_database_of_another_kind_is_refused():
    with pytest.raises(ValidationError, match="must begin with"):
        Settings(database_url="mysql://localhost/flowcast")
