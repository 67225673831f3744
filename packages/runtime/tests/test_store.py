"""The store: whole entries or none, whatever happens to the disk or the writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest

from flambeau_runtime import log
from flambeau_runtime.cache import CacheKey, Store
from flambeau_runtime.cache.entry import pack, unpack
from flambeau_runtime.profile import recording


def key(name: str = "a", kind: str = "test", **parts: str) -> CacheKey:
    return CacheKey(kind, {"name": name, **parts})


def script(body: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body), *arguments], stdout=subprocess.PIPE, text=True
    )


def files(store: Store) -> list[Path]:
    return [path for path in store.folder.rglob("*") if path.is_file() and "locks" not in path.parts]


def test_put_and_get(tmp_path) -> None:
    store = Store(tmp_path)
    assert store.get(key()) is None
    store.put(key(), b"payload")
    assert store.get(key()) == b"payload" and Store(tmp_path).get(key()) == b"payload"
    assert store.path(key()).read_bytes().startswith(b"payload")
    store.put_json(key("j"), {"x": [1, 2.5]})
    assert store.get_json(key("j")) == {"x": [1, 2.5]}
    store.remove(key())
    assert store.get(key()) is None
    store.clear()
    assert files(store) == []


def test_hits_and_misses_are_counted(tmp_path: Path) -> None:
    """By kind."""
    store = Store(tmp_path)
    with recording() as profile:
        store.get(key())
        store.put(key(), b"payload")
        store.get(key())
        store.get(key())
        store.get(key(kind="other"))
    assert profile.counters == {
        f"{log.CACHE_MISS}: test": 1,
        f"{log.CACHE_HIT}: test": 2,
        f"{log.CACHE_MISS}: other": 1,
    }


@pytest.mark.parametrize("folder", [True, False])
def test_says_whether_there_is_any_entry_of_a_kind(tmp_path: Path, folder: bool) -> None:
    """On disk and in memory alike."""
    store = Store(tmp_path / "cache" if folder else None)
    assert not store.holds("cubin")
    store.put(CacheKey("graph", {"a": "1"}), b"payload")
    assert store.holds("graph") and not store.holds("cubin")
    store.clear()
    assert not store.holds("graph")


def test_keys_depend_on_kind_names_and_values_only() -> None:
    assert CacheKey("k", {"a": "1", "b": "2"}) == CacheKey("k", (("b", "2"), ("a", "1")))
    digests = {CacheKey("k", {"a": "1"}).digest, CacheKey("l", {"a": "1"}).digest, CacheKey("k", {"a": "2"}).digest,
               CacheKey("k", {"b": "1"}).digest}  # fmt: skip
    assert len(digests) == 4
    with pytest.raises(ValueError, match="kind"):
        CacheKey("../etc", {})


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "garbage"])
def test_a_damaged_entry_is_a_miss_and_removed(damage: str, tmp_path) -> None:
    store = Store(tmp_path)
    store.put(key(), b"x" * 1000)
    path = store.path(key())
    data = path.read_bytes()
    path.write_bytes({"truncate": data[:500], "flip": b"y" + data[1:], "empty": b"", "garbage": b"z" * 3000}[damage])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert store.get(key()) is None
        assert store.get(key()) is None
    assert len(caught) == 1 and "corrupt" in str(caught[0].message)
    assert not path.exists()
    store.put(key(), b"again")
    assert store.get(key()) == b"again"


def test_entry_packing() -> None:
    assert unpack(pack(key(), b"")) == (b"", {"name": "a"})
    assert unpack(pack(key(), b"1234")[:-1]) is None


@pytest.mark.parametrize("obstacle", ["file", "readonly"])
def test_an_unwritable_folder_keeps_entries_in_memory_with_one_warning(obstacle: str, tmp_path) -> None:
    folder = tmp_path / "cache"
    if obstacle == "file":
        folder.write_text("not a folder")
    elif os.geteuid() == 0:
        folder = Path("/proc/flambeau")
    else:
        folder.mkdir(mode=0o500)
    store = Store(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.put(key("a"), b"1")
        store.put(key("b"), b"2")
    assert store.get(key("a")) == b"1" and store.get(key("b")) == b"2" and store.get(key("c")) is None
    assert len(caught) == 1 and "memory" in str(caught[0].message)
    with store.lock(key()) as held:
        assert not held


def test_a_store_without_a_folder() -> None:
    store = Store(None)
    store.put(key(), b"1")
    assert store.get(key()) == b"1" and store.path(key()) is None and "present" in store.why(key())


def test_why_names_the_parts_that_differ(tmp_path) -> None:
    store = Store(tmp_path)
    assert "no entry of this kind" in store.why(key())
    store.put(key("a", source="1", flags="x"), b"")
    store.put(key("b", source="2", flags="y"), b"")
    answer = store.why(key("a", source="1", flags="z"))
    assert "flags: 'x' is stored, 'z' is wanted" in answer and "source" not in answer


def test_why_shows_the_place_where_long_texts_differ(tmp_path) -> None:
    store = Store(tmp_path)
    lines = [f"line {number} " + "x" * 300 for number in range(5)]
    store.put(key("a", source="\n".join(lines)), b"")
    lines[3] = lines[3][:200] + "!" + lines[3][201:]
    answer = store.why(key("a", source="\n".join(lines)))
    assert "source, 1 of 5 lines, the first of them line 4: …" in answer and "!" in answer and len(answer) < 450
    assert "(absent)' is wanted" in store.why(key("a", source="\n".join(lines[:3])))


def test_bundles(tmp_path) -> None:
    first, second = Store(tmp_path / "1"), Store(tmp_path / "2")
    for name in "abc":
        first.put(key(name), name.encode())
    assert len(second.import_bundle(first.export_bundle())) == 3
    assert second.get(key("b")) == b"b"
    assert Store(None).import_bundle(first.export_bundle([key("a"), key("zz")])) == (key("a"),)
    with pytest.raises(ValueError, match="bundle"):
        second.import_bundle(b"not a tar archive")


def test_eviction_removes_the_least_recently_used(tmp_path) -> None:
    store = Store(tmp_path, limit_bytes=10_000)
    now = time.time()
    for index in range(8):
        store.put(key(str(index)), b"x" * 2000)
        os.utime(store.path(key(str(index))), (now - 100 + index, now - 100 + index))
    store.sweep()
    left = [index for index in range(8) if store.get(key(str(index))) is not None]
    assert left == [4, 5, 6, 7]


def test_a_reader_refreshes_an_entry(tmp_path) -> None:
    store = Store(tmp_path)
    store.put(key(), b"1")
    path = store.path(key())
    os.utime(path, (1, 1))
    store.get(key())
    assert path.stat().st_mtime > 1e9


def test_kill_while_writing_leaves_no_partial_entry(tmp_path) -> None:
    """Writers killed at many moments: every entry that exists is whole, and what they left is swept."""
    body = """
        import sys
        from flambeau_runtime.cache import CacheKey, Store
        store = Store(sys.argv[1])
        print("ready", flush=True)
        for i in range(100000):
            store.put(CacheKey("test", {"name": str(i % 7)}), bytes([i % 251]) * 2_000_000)
    """
    for delay in (0.0, 0.013, 0.041):
        writer = script(body, str(tmp_path))
        assert writer.stdout.readline() == "ready\n"
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    store = Store(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [store.get(key(str(i))) for i in range(7)]
    assert all(payload is None or (len(payload) == 2_000_000 and len(set(payload)) == 1) for payload in found)
    for path in (store.folder / "tmp").glob("*"):
        os.utime(path, (1, 1))
    store.sweep()
    assert list((store.folder / "tmp").glob("*")) == []


def test_a_live_writers_temporary_file_is_left_alone(tmp_path) -> None:
    import fcntl

    store = Store(tmp_path)
    store.put(key(), b"1")
    path = store.folder / "tmp" / "other"
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.utime(path, (1, 1))
        store.sweep()
        assert path.exists()


def test_two_processes_write_one_key(tmp_path) -> None:
    body = """
        import sys
        from flambeau_runtime.cache import CacheKey, Store
        store = Store(sys.argv[1])
        key = CacheKey("test", {"name": "a"})
        for i in range(60):
            store.put(key, sys.argv[2].encode() * 100_000)
            got = store.get(key)
            assert got in (b"x" * 100_000, b"y" * 100_000), len(got or b"")
    """
    writers = [script(body, str(tmp_path), letter) for letter in "xy"]
    for writer in writers:
        assert writer.wait(60) == 0
        writer.stdout.close()
    assert len(files(Store(tmp_path))) == 1


def test_a_dead_owners_lock_is_taken_over(tmp_path) -> None:
    body = """
        import sys, time
        from flambeau_runtime.cache import CacheKey, Store
        with Store(sys.argv[1]).lock(CacheKey("test", {"name": "a"})) as held:
            print(held, flush=True)
            time.sleep(60)
    """
    owner = script(body, str(tmp_path))
    assert owner.stdout.readline() == "True\n"
    store = Store(tmp_path)
    with store.lock(key(), patience_seconds=0.05) as held:
        assert not held
    owner.kill()
    owner.wait()
    owner.stdout.close()
    with store.lock(key(), patience_seconds=5) as held:
        assert held


def test_threads_exclude_each_other(tmp_path) -> None:
    store, inside, most = Store(tmp_path), [], []

    def work() -> None:
        for _ in range(20):
            with store.lock(key()):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
