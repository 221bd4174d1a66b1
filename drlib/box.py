"""A black box served from a process of its own: the attack's process never holds a parameter.

``python -m drlib.box STORE PARENT`` reads requests from standard input and answers on standard output: a line
of JSON, then the raw float32 values if there are any.

    {"load": {"after": [kind, key], "before": [kind, key]}}    ->  {"spec": {...}}
    {"ask": "after", "shape": [n, c, h, w]} + values            ->  {"shape": [n, K]} + values
    {"asked": true}                                             ->  {"asked": images asked so far}

The attack's process starts the box before it is sealed. Asking the box to load something else would only give
query access to another model.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from drlib import pool
from drlib.errors import UserError
from drlib.store import Store
from drlib.stored_model import description_of, restore, target_spec
from drlib.types import BlackBox, TargetSpec, Update, WhiteBox

KINDS = ("target", "update")

# --- in the box ----------------------------------------------------------------------------------------


def serve() -> None:
    """The life of a box: answer requests until standard input ends or the parent is gone."""
    pool.become_worker()
    store = Store(sys.argv[1])
    requests, answers = sys.stdin.buffer, pool.answer_stream("wb")
    served: dict[str, WhiteBox] = {}
    asked = 0
    while line := requests.readline():
        request = json.loads(line)
        try:
            if "load" in request:
                served = {name: _load(store, *address) for name, address in request["load"].items()}
                _send(answers, {"spec": description_of(served["after"].spec)})
            elif "asked" in request:
                _send(answers, {"asked": asked})
            else:
                images = _receive(requests, request["shape"])
                asked += len(images)
                box = served[request["ask"]]
                probabilities = box.query(images.to(box.device)).cpu()
                _send(answers, {"shape": list(probabilities.shape)}, probabilities)
        except Exception as error:
            _send(answers, {"error": str(error)})


def _load(store: Store, kind: str, key: str) -> WhiteBox:
    if kind not in KINDS:
        raise UserError(f"a box serves {' or '.join(KINDS)}, not {kind}")
    return restore(store.load(kind, key))


# --- in the attack's process ---------------------------------------------------------------------------


class RemoteBox:
    """The other end: starts the box's process; ``black_box`` and ``update`` make views of what it serves."""

    def __init__(self, store_root: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drlib.box", store_root, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=pool.worker_environment(),
        )

    def asked(self) -> int:
        """Images that the box was asked since it was started, by whomever."""
        return self._exchange({"asked": True})["asked"]

    def pipes(self) -> tuple[int, int]:
        """The file descriptors by which a copy of this process reaches the box."""
        return self.process.stdin.fileno(), self.process.stdout.fileno()

    def black_box(self, target: tuple[str, str]) -> BlackBox:
        """Query access to the model at ``target`` = (kind, key)."""
        return BlackBox(self._asker("after"), self._load({"after": target}))

    def update(self, after: tuple[str, str], before: tuple[str, str]) -> Update:
        """Query access to a model before and after its update."""
        spec = self._load({"after": after, "before": before})
        return Update(self._asker("after"), self._asker("before"), spec)

    def _load(self, addresses: dict[str, tuple[str, str]]) -> TargetSpec:
        return target_spec(self._exchange({"load": addresses})["spec"])

    def _asker(self, which: str) -> Callable[[Tensor], Tensor]:
        def ask(images: Tensor) -> Tensor:
            answer = self._exchange({"ask": which, "shape": list(images.shape)}, images)
            return _receive(self.process.stdout, answer["shape"]).to(images.device)

        return ask

    def _exchange(self, request: dict[str, Any], values: Tensor | None = None) -> dict[str, Any]:
        try:
            _send(self.process.stdin, request, values)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise UserError(f"the black box ended with code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(f"the black box refused: {answer['error']}")
        return answer


def _send(stream: BinaryIO, message: dict[str, Any], values: Tensor | None = None) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    if values is not None:
        stream.write(values.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    stream.flush()


def _receive(stream: BinaryIO, shape: list[int]) -> Tensor:
    wanted = 4 * math.prod(shape)
    data = stream.read(wanted)
    if len(data) != wanted:
        raise UserError("the other end of a black box stopped in the middle of a message")
    return torch.from_numpy(np.frombuffer(data, dtype=np.float32).reshape(shape).copy())


if __name__ == "__main__":
    serve()
