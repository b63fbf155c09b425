"""Uploads on a disk whose every operation fails in turn: whole or absent, and nothing is left behind."""

import os
import shutil
from pathlib import Path

import pytest

from disk_faults import Crash, every_fault
from gridprobe.errors import UsageError
from gridprobe_serve import store as module
from gridprobe_serve.errors import ApiError
from gridprobe_serve.store import Blob, MediaStore, Upload
from serving_kit import jpeg

QUOTA = 10_000
PARTS = (b"first part, ", b"second part")
STATUS = {"ENOSPC": (507,), "full": (507,), "EIO": (503,)}


class Client:
    """Uploads a video and sends pictures, and knows what the server acknowledged."""

    def __init__(self) -> None:
        self.uploads: list[Upload] = []
        self.pictures: list[Blob] = []

    def work(self, store: MediaStore) -> None:
        with store.receiving(QUOTA) as incoming:
            for part in PARTS:
                incoming.write(part)
            self.uploads.append(store.upload(incoming, "talk.mp4"))
        self.pictures.append(store.keep_pictures([jpeg(), jpeg(50)], [0.0, 1.0]))

    def check(self) -> None:
        for upload in self.uploads:
            assert upload.blob.path.read_bytes() == b"".join(PARTS)
        for blob in self.pictures:
            assert sorted(os.listdir(blob.path)) == ["000000.jpg", "000001.jpg", "times.json"]
            assert (blob.path / "000001.jpg").read_bytes() == jpeg(50)

    def leave(self, store: MediaStore) -> None:
        while self.pictures:
            store.drop(self.pictures.pop())
        while self.uploads:
            store.remove(self.uploads.pop().id)


def test_every_fault_leaves_uploads_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for disk in every_fault(tmp_path):
        disk.place.mkdir()
        client, store = Client(), None
        with disk:
            try:
                store = MediaStore(quota=QUOTA, parent=disk.place)
                client.work(store)
                client.leave(store)
                store.close()
            except ApiError as refusal:
                assert refusal.status in STATUS[disk.kind], disk.operations[-1]
            except UsageError as error:
                assert str(error).startswith(f"cannot store uploads in {disk.place}: ") and store is None
            except Crash:
                pass
        if store is not None and disk.kind != "crash" and store.folder.exists():
            client.check()
            client.leave(store)
            client.work(store)  # the same content again
            client.check()
            client.leave(store)
            assert store.size == 0 and os.listdir(store.folder) in (["in-use"], [])
            store.close()
        monkeypatch.setattr(module, "ABANDONED_SECONDS", -1.0)  # an hour later
        MediaStore(quota=QUOTA, parent=disk.place).close()
        monkeypatch.undo()
        assert not os.listdir(disk.place), disk.operations[-1]
        shutil.rmtree(disk.place)
