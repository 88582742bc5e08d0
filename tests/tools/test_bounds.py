"""The requirements that `python -m tools.bounds` installs."""

from packaging.requirements import Requirement

from tools.bounds import lowest, requirements


def test_every_requirement_has_one_lower_bound_and_accepts_it():
    for requirement in requirements():
        pinned = Requirement(lowest(requirement))
        assert (pinned.name, pinned.extras) == (requirement.name, requirement.extras)
        [version] = pinned.specifier
        assert version.operator == "==" and version.version in requirement.specifier
    assert {"tensorflow", "pytest", "matplotlib"} <= {each.name for each in requirements()}
