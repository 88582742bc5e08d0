"""Makes pytest explain failed assertions in the shared contract."""

import pytest

pytest.register_assert_rewrite("contract")
