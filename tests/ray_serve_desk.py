"""The service of the replicas in the test of Ray Serve: a scripted model that waits until the test lets it go on."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gridprobe import MockModel
from gridprobe._util import report
from gridprobe.models import Request, Response
from gridprobe.options import Options
from gridprobe_serve.command import server_limits_of
from gridprobe_serve.service import VideoService
from gridprobe_serve.store import AllowedFolders

FOLDER = "GRIDPROBE_TEST_FOLDER"
"""The variable with the folder in which the test and the models write notes for each other."""


class Waiting(MockModel):
    """Answers A, as long as there is no file "closed"; a file with its process id says that it has been called."""

    def __init__(self, folder: Path) -> None:
        super().__init__(self._believe, name="waiting")
        self._folder = folder

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        (self._folder / f"called-{os.getpid()}").touch()
        while (self._folder / "closed").exists():
            report("model", 0, len(requests))
            time.sleep(0.01)
        return super().run(requests)

    @staticmethod
    def _believe(request: Request) -> dict[str, float]:
        rest = 0.002 / (len(request.labels) - 1)
        return {label: 0.998 if label == "A" else rest for label in request.labels}


def make_service(given: dict[str, Any]) -> tuple[VideoService, list[str]]:
    folder = AllowedFolders.at(given["videos"])
    model = Waiting(Path(os.environ[FOLDER]))
    return VideoService(model, settings=Options(k=3), limits=server_limits_of(given), folder=folder), []
