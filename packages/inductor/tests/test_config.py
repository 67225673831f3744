"""Options: defaults, environment, mistakes."""

import pytest

from flambeau_inductor import Config, OptionError


def test_environment_overrides_defaults():
    """Each field has a variable."""
    config = Config.from_environment(
        {"FLAMBEAU_INDUCTOR_FUSE": "0", "FLAMBEAU_INDUCTOR_REALIZE_OPCOUNT_THRESHOLD": "7"}
    )
    assert (config.fuse, config.realize_opcount_threshold) == (False, 7)


@pytest.mark.parametrize(("options", "words"), [
    ({"nothing": 1}, "nothing"),
    ({"numerics": "wild"}, "expected 'faithful' or 'fast'"),
    ({"fuse": "yes"}, "expected on or off"),
    ({"realize_opcount_threshold": 1.5}, "expected an integer"),
    ({"realize_opcount_threshold": 0}, "expected at least 1"),
    ({"dump": 1}, "expected a text"),
])  # fmt: skip
def test_mistakes_are_errors(options, words):
    """Unknown names and wrong values never pass silently, and the error says what there is."""
    with pytest.raises(OptionError, match=words):
        Config().with_options(options)


def test_environment_mistakes_are_errors():
    """A value that does not parse names its variable."""
    with pytest.raises(OptionError, match="FUSE"):
        Config.from_environment({"FLAMBEAU_INDUCTOR_FUSE": "perhaps"})


def test_key_leaves_out_what_does_not_change_the_code():
    """Checking and dumping do not belong to a cache key."""
    assert Config().key() == Config(verify=True, dump="x").key()
    assert Config().key() != Config(numerics="fast").key()


def test_rows_that_do_not_depend_on_others_by_one_option():
    """It decides all that it needs, whatever else is asked for, and refuses kernels that do not keep the order."""
    asked = {"max_autotune": True, "numerics": "fast", "batch_invariant": True}
    for config in (Config(**asked), Config().with_options(asked), Config.from_environment({}, **asked)):
        assert config.numerics == "faithful"
        assert not (config.max_autotune or config.autotune_local_cache or config.pattern_matcher)
        assert not (config.batch_fusion or config.split_reductions or config.loop_ordering_after_fusion)
    with pytest.raises(OptionError, match="C\\+\\+ kernels alone"):
        Config(batch_invariant=True, cpu_backend="triton")
