"""Only a folder that nobody else may change is read: what lies there is loaded and run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from flambeau_runtime.cache import CacheKey, Store
from flambeau_runtime.cache.entry import pack
from flambeau_runtime.cache.trust import belongs_to_us, examine, scratch_folder

KEY = CacheKey("kernel", {"source": "a"})
OTHER_USER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def planted(folder: Path) -> Path:
    """An entry in a cache below `folder`, as our own process would write it."""
    path = folder / "v1" / KEY.kind / KEY.digest[:2] / KEY.digest
    path.parent.mkdir(parents=True)
    path.write_bytes(pack(KEY, b"planted"))
    return path


def warned_and_found(folder: Path, *, shared: bool = False) -> tuple[list[str], bytes | None, Store]:
    store = Store(folder, shared=shared)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = store.get(KEY)
        store.put(KEY, b"ours")
        assert store.get(KEY) == b"ours"
    return [str(warning.message) for warning in caught], found, store


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777], ids=oct)
@pytest.mark.parametrize("place", ["folder", "above", "layout"])
def test_a_folder_that_everybody_may_write_is_refused_once(tmp_path: Path, mode: int, place: str) -> None:
    """The folder, one above it or one inside it; the sticky bit only helps above: below it others could still add entries."""
    folder = tmp_path / "above" / "cache"
    planted(folder)
    opened = {"folder": folder, "above": folder.parent, "layout": folder / "v1"}[place]
    opened.chmod(mode)
    told, found, store = warned_and_found(folder)
    if place != "layout" and mode & 0o1000:
        assert (told, found) == ([], b"planted")
        return
    assert found is None and store.folder is None
    assert len(told) == 1 and str(opened) in told[0] and "chmod go-w" in told[0]
    assert "FLAMBEAU_CACHE_SHARED" in told[0]
    assert (folder / "v1" / KEY.kind / KEY.digest[:2] / KEY.digest).read_bytes() == pack(KEY, b"planted")
    assert os.listdir(folder / "v1") == [KEY.kind]


def test_a_shared_folder_is_used_where_that_was_asked_for(tmp_path: Path) -> None:
    """The explicit setting."""
    planted(tmp_path)
    (tmp_path / "v1").chmod(0o777)
    told, found, _ = warned_and_found(tmp_path, shared=True)
    assert (told, found) == ([], b"planted")


@as_root
@pytest.mark.parametrize("place", ["folder", "above", "layout"])
def test_a_folder_of_another_user_is_refused_once(tmp_path: Path, place: str) -> None:
    """Even root does not load what another user's folder holds."""
    folder = tmp_path / "above" / "cache"
    planted(folder)
    given = {"folder": folder, "above": folder.parent, "layout": folder / "v1"}[place]
    os.chown(given, OTHER_USER, OTHER_USER)
    told, found, _ = warned_and_found(folder)
    assert found is None and len(told) == 1 and f"belongs to user {OTHER_USER}" in told[0]


@as_root
def test_an_entry_of_another_user_is_not_read(tmp_path: Path) -> None:
    """The folder may have been open to others once; the entry is replaced by ours."""
    path = planted(tmp_path)
    os.chown(path, OTHER_USER, OTHER_USER)
    told, found, _ = warned_and_found(tmp_path)
    assert found is None and len(told) == 1 and "others" in told[0]
    assert path.read_bytes() == pack(KEY, b"ours")


@pytest.mark.parametrize("mode", [0o666, 0o646], ids=oct)
def test_an_entry_that_others_may_write_is_not_read(tmp_path: Path, mode: int) -> None:
    """The same for its mode."""
    planted(tmp_path).chmod(mode)
    told, found, _ = warned_and_found(tmp_path)
    assert found is None and len(told) == 1


def test_an_entry_under_the_name_of_another_is_a_miss(tmp_path: Path) -> None:
    """A file that is whole but belongs to another key is not what was asked for."""
    path = planted(tmp_path)
    path.write_bytes(pack(CacheKey("kernel", {"source": "b"}), b"another"))
    told, found, _ = warned_and_found(tmp_path)
    assert found is None and len(told) == 1 and "corrupt" in told[0]


def test_symbolic_links_are_followed_and_looked_at(tmp_path: Path) -> None:
    """A link is as good as what it leads to, through every folder on the way; circles end."""
    real = tmp_path / "real"
    planted(real)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "cache").symlink_to("../real")
    (tmp_path / "links" / "absolute").symlink_to(tmp_path / "links" / "cache")
    verdict = examine(tmp_path / "links" / "absolute")
    assert verdict.exists and verdict.folder == real.resolve()
    assert warned_and_found(tmp_path / "links" / "absolute")[1] == b"planted"
    (tmp_path / "links").chmod(0o777)
    assert examine(tmp_path / "links" / "absolute").folder is None
    (tmp_path / "circle").symlink_to("circle")
    assert "too many symbolic links" in examine(tmp_path / "circle").reason


@as_root
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    """In a sticky folder another user may have put it there."""
    planted(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    os.chown(link, OTHER_USER, OTHER_USER, follow_symlinks=False)
    tmp_path.chmod(0o1777)
    assert f"belongs to user {OTHER_USER}" in examine(link).reason


def test_a_link_in_place_of_an_entry_is_not_followed(tmp_path: Path) -> None:
    path = planted(tmp_path)
    target = tmp_path / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    assert warned_and_found(tmp_path)[1] is None


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022], ids=oct)
def test_what_we_make_is_for_us_alone(tmp_path: Path, umask: int) -> None:
    """Whatever the umask, the next process trusts what this one made."""
    before = os.umask(umask)
    try:
        store = Store(tmp_path / "a" / "cache")
        store.put(KEY, b"ours")
        with store.lock(KEY) as held:
            assert held
    finally:
        os.umask(before)
    for path in (tmp_path / "a").rglob("*"):
        assert belongs_to_us(path.stat()) and not path.stat().st_mode & 0o077, path
    assert warned_and_found(tmp_path / "a" / "cache")[:2] == ([], b"ours")


def test_a_folder_that_is_opened_while_we_look_is_looked_at_by_handle(tmp_path: Path) -> None:
    """What is missing is ours to make; what exists is settled once."""
    folder = tmp_path / "later"
    store = Store(folder)
    assert store.get(KEY) is None
    folder.mkdir(mode=0o700)
    (folder / "v1").mkdir()
    (folder / "v1").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="is not used"):
        store.put(KEY, b"ours")
    assert store.folder is None and store.get(KEY) == b"ours"


def test_kernels_are_not_built_in_a_folder_that_others_may_change(tmp_path: Path, monkeypatch) -> None:
    """A temporary folder without the sticky bit is left alone, after one warning."""
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    program = """
        import warnings
        from flambeau_runtime.cache.trust import scratch_folder
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print(scratch_folder() or scratch_folder())
        assert len(caught) == 1, caught
    """
    environment = {**os.environ, "TMPDIR": str(open_folder)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in ("None", str(open_folder))
    scratch_folder.cache_clear()
    assert scratch_folder() is None
