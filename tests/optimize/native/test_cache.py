"""The folder of built libraries: only this user's own, whole files of the right graph are loaded, and not too many kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lit_rl.optimize.native import cache
from lit_rl.optimize.native.builder import file_name
from lit_rl.optimize.native.cache import Cache, CacheError, default_folder, environment_key, graph_key


def keep(folder: Path, key: str, content: bytes = b"code") -> Path:
    path = folder / file_name(key, content)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_it_lies_in_the_users_cache_folder_and_nobody_else_can_look_in(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = Cache()
    assert made.folder == tmp_path / "lit_rl" / "native"
    assert made.folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the XDG specification says to ignore
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_folder() == Path("/home/somebody/.cache/lit_rl/native")


def test_a_whole_file_of_the_key_is_found(tmp_path):
    made = Cache(tmp_path / "lit_rl" / "native")
    assert made.find("a") is None
    path = keep(made.folder, "a")
    assert made.find("a") == path and made.find("b") is None
    assert made.holds("a") and not made.holds("b")


def test_truncated_damaged_and_renamed_files_are_removed(tmp_path):
    made = Cache(tmp_path / "lit_rl" / "native")
    truncated = keep(made.folder, "a")
    truncated.write_bytes(b"cod")
    other = keep(made.folder, "b").rename(made.folder / file_name("c", b"code").replace("c-", "d-"))
    for key in ("a", "d"):
        assert made.find(key) is None
    assert not truncated.exists() and not other.exists()


def test_files_that_others_can_write_to_and_links_are_not_loaded(tmp_path):
    made = Cache(tmp_path / "lit_rl" / "native")
    keep(made.folder, "a").chmod(0o666)
    elsewhere = keep(tmp_path, "b")
    (made.folder / elsewhere.name).symlink_to(elsewhere)
    assert made.find("a") is None and made.find("b") is None
    assert elsewhere.exists()


def test_files_of_another_user_are_not_loaded(tmp_path, monkeypatch):
    made = Cache(tmp_path / "lit_rl" / "native")
    keep(made.folder, "a")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert made.find("a") is None
    with pytest.raises(CacheError, match="belongs to another user"):
        Cache(tmp_path / "lit_rl" / "native")


@pytest.mark.parametrize("folder", ["lit_rl", "lit_rl/native"])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, folder):
    Cache(tmp_path / "lit_rl" / "native")
    (tmp_path / folder).chmod(0o777)
    with pytest.raises(CacheError, match=f"other users can write to {tmp_path / folder} "):
        Cache(tmp_path / "lit_rl" / "native")


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "lit_rl").write_text("")
    with pytest.raises(CacheError, match="cannot be made"):
        Cache(tmp_path / "lit_rl" / "native")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheError, match="is not a folder"):
        Cache(tmp_path / "link" / "native")


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    made = Cache(tmp_path / "lit_rl" / "native", limit=25)
    for age, key in ((30, "old"), (20, "used"), (10, "new")):
        path = keep(made.folder, key, b"0123456789")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert made.find("old")  # which is a use
    made.tidy()
    assert made.find("old") and made.find("new") and not made.find("used")


def test_what_killed_builds_left_goes_when_it_is_old(tmp_path):
    made = Cache(tmp_path / "lit_rl" / "native")
    for name in ("build-1-old", "build-2-new"):
        (made.folder / name).mkdir()
        (made.folder / name / "half").write_text("")
    os.utime(made.folder / "build-1-old", (0, 0))
    made.tidy()
    assert [path.name for path in made.folder.iterdir()] == ["build-2-new"]


def test_a_key_changes_with_all_that_a_build_depends_on(monkeypatch):
    import torch

    keys = [environment_key()]
    for change in (
        lambda: torch.set_num_threads(2),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: monkeypatch.setattr(torch, "__version__", "0"),
        lambda: monkeypatch.setattr(cache, "_cpu", lambda: ["another"]),
        lambda: monkeypatch.setattr(cache, "VERSION", 0),
        lambda: monkeypatch.setenv("TORCHINDUCTOR_X", "1"),
    ):
        change()
        keys.append(environment_key())
    torch.set_float32_matmul_precision("highest")
    assert len(set(keys)) == len(keys)
    one = ("return x", [[[2], [1], "float32"]])
    others = [("return -x", one[1]), (one[0], [[[3], [1], "float32"]]), (one[0], [[[2], [1], "float64"]])]
    assert graph_key(*one) == graph_key(*one) and graph_key(*one) not in [graph_key(*other) for other in others]
