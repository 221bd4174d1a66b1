"""Attacks that cheat, each beside an honest twin that does the same with what it was given.

An attack here "succeeds" by returning images at all. A cheat that is stopped raises; one that looks for
something and finds nothing raises ``Nothing``.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pathlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from drlib.types import (
    BLACK_BOX,
    NO_DATA,
    SIMILAR,
    STATIC,
    WHITE_BOX,
    Attack,
    Knowledge,
    Reconstruction,
)

STORE = pathlib.Path(os.environ.get("CHEATED_STORE", "/nonexistent"))
DATA = pathlib.Path(os.environ.get("CHEATED_DATA", "/nonexistent"))


class Nothing(Exception):
    """The cheat looked and found nothing."""


@dataclass(frozen=True, kw_only=True)
class Plain(Attack):
    """Returns noise, after ``peek``."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "Plain"
    paper: ClassVar[str] = "none"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)

    def peek(self, access):
        """What this attack does besides."""

    def reconstruct(self, access, prepared, *, n, labels, generator, progress):
        self.peek(access)
        progress(n, n)
        return Reconstruction(
            torch.rand((n, *access.spec.shape), generator=generator), labels, torch.zeros(1)
        )


class BlackBox(Plain):
    knowledge = Knowledge(STATIC, BLACK_BOX, NO_DATA)


def scores():
    """A file that was made with D_tar."""
    return next((STORE / "score").glob("*/tensors.safetensors"))


# --- files -----------------------------------------------------------------------------------------------


class OpensTheStore(Plain):
    def peek(self, access):
        scores().read_bytes()


class OpensItsOwnModulesFile(Plain):
    def peek(self, access):
        pathlib.Path(__file__).read_bytes()


class LoadsSafetensors(Plain):
    def peek(self, access):
        from safetensors.torch import load_file

        load_file(scores())


class LoadsSafetensorsInMemory(Plain):
    def peek(self, access):
        from safetensors.torch import load, save

        load(save({"own": torch.zeros(2)}))


class MapsTheStore(Plain):
    def peek(self, access):
        path = scores()
        torch.UntypedStorage.from_file(str(path), False, 8)


class MapsItsOwnFile(Plain):
    def peek(self, access):
        torch.UntypedStorage.from_file(__file__, False, 8)


class OpensRelativeToAFolder(Plain):
    def peek(self, access):
        path = scores()
        folder = os.open(path.parent, os.O_RDONLY)
        os.open(path.name, os.O_RDONLY, dir_fd=folder)


class OpensItselfRelativeToAFolder(Plain):
    def peek(self, access):
        path = pathlib.Path(__file__)
        folder = os.open(path.parent, os.O_RDONLY)
        os.open(path.name, os.O_RDONLY, dir_fd=folder)


class AsksItsParents(Plain):
    """The task's own handle on the store, found through the garbage collector."""

    knowledge = Knowledge(STATIC, BLACK_BOX, NO_DATA)

    def peek(self, access):
        for thing in gc.get_objects():
            if type(thing).__name__ == "Parents":
                thing["target"]
                return
        raise Nothing


class WritesToTheStore(Plain):
    def peek(self, access):
        import pyarrow

        with pyarrow.OSFile(str(STORE / "score" / "forged"), "wb") as file:
            file.write(b"forged")


class WritesToDevNull(Plain):
    def peek(self, access):
        import pyarrow

        with pyarrow.OSFile("/dev/null", "wb") as file:
            file.write(b"nothing")


# --- data sets -------------------------------------------------------------------------------------------


class ImportsTheData(Plain):
    def peek(self, access):
        import drlib.data  # noqa: F401


class ImportsMathematics(Plain):
    def peek(self, access):
        import cmath  # noqa: F401


class LoadsDigits(Plain):
    def peek(self, access):
        from sklearn.datasets import load_digits

        load_digits()


class Clusters(Plain):
    def peek(self, access):
        from sklearn.cluster import KMeans

        KMeans(2, n_init=1, random_state=0).fit(torch.rand(8, 2).numpy())


class ReadsTheEmbeddedFile(Plain):
    """The digits inside scikit-learn, through compiled code."""

    def peek(self, access):
        import sklearn
        from pyarrow import csv

        csv.read_csv(pathlib.Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz")


class ReadsItsOwnFile(Plain):
    def peek(self, access):
        import pyarrow

        pyarrow.OSFile(__file__, "rb").read()


class ReadsTheDataFolder(Plain):
    """The user's own data set (``folder:`` or ``npz:``), through compiled code."""

    def peek(self, access):
        import pyarrow

        pyarrow.OSFile(str(DATA), "rb").read()


class TakesAuxiliaryImages(Plain):
    """Declares no data and asks for auxiliary images all the same."""

    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"images": auxiliary.images}


class TakesAuxiliaryImagesAndSaysSo(TakesAuxiliaryImages):
    knowledge = Knowledge(STATIC, WHITE_BOX, SIMILAR)


class TakesAuxiliaryLabels(Plain):
    """Declares images alone and takes the labels too."""

    knowledge = Knowledge(STATIC, WHITE_BOX, SIMILAR)
    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"labels": auxiliary.labels.clone()}


class TakesAuxiliaryLabelsAndSaysSo(TakesAuxiliaryLabels):
    auxiliary_labels = True


class QueriesWhilePreparingBlindly(Plain):
    """Says that its prior does not see the target and asks it all the same."""

    knowledge = Knowledge(STATIC, WHITE_BOX, SIMILAR)
    prepares = True
    prior_sees_target = False

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"answers": access.query(auxiliary.images[:2])}


class QueriesWhilePreparing(QueriesWhilePreparingBlindly):
    prior_sees_target = True


# --- other processes -------------------------------------------------------------------------------------


class StartsAProcess(Plain):
    def peek(self, access):
        import subprocess

        subprocess.run(["cat", str(scores())], check=True, stdout=subprocess.DEVNULL)


class StartsAThread(Plain):
    def peek(self, access):
        import threading

        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()


class ReadsAnothersMemory(Plain):
    def peek(self, access):
        with open(f"/proc/{os.getppid()}/mem", "rb"):
            pass


class ReadsItsOwnStatus(Plain):
    def peek(self, access):
        with open("/proc/self/status", "rb"):
            pass


# --- parameters of a black box ---------------------------------------------------------------------------


class AsksForTheModel(BlackBox):
    def peek(self, access):
        access.model.state_dict()


class AsksForTheModelAndSaysSo(AsksForTheModel):
    knowledge = Knowledge(STATIC, WHITE_BOX, NO_DATA)


class OpensTheClosure(BlackBox):
    """Follows the query function's closure to a model."""

    def peek(self, access):
        waiting, seen = [access.__dict__.get("_query")], set()
        while waiting:
            thing = waiting.pop()
            if isinstance(thing, torch.nn.Module):
                return
            if id(thing) in seen or thing is None or isinstance(thing, type(os)):
                continue
            seen.add(id(thing))
            waiting += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
            waiting += [getattr(thing, "__self__", None)]
            waiting += list(getattr(thing, "__dict__", {}).values())
        raise Nothing


class Queries(BlackBox):
    def peek(self, access):
        access.query(torch.rand(2, *access.spec.shape))


class CollectsGarbage(BlackBox):
    """Any module with parameters that the interpreter knows of."""

    def peek(self, access):
        for thing in gc.get_objects():
            if isinstance(thing, torch.nn.Module) and next(thing.parameters(), None) is not None:
                return
        raise Nothing


class CollectsItsOwnGarbage(BlackBox):
    def peek(self, access):
        mine = torch.nn.Linear(2, 2)
        assert any(thing is mine for thing in gc.get_objects())


# --- when it is over -------------------------------------------------------------------------------------


def embedded_digits():
    """The digits inside scikit-learn, through compiled code that no audit hook sees."""
    import sklearn

    path = pathlib.Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.open(str(path).encode(), os.O_RDONLY)
    if descriptor < 0:
        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


class LooksWhenItIsLookedAt(Plain):
    """Returns a result that opens the data only when somebody reads it."""

    def reconstruct(self, access, prepared, **asked):
        made = super().reconstruct(access, prepared, **asked)

        class Lazy(Reconstruction):
            def __getattribute__(self, name):
                if name == "images":
                    embedded_digits()
                return super().__getattribute__(name)

        return Lazy(made.images, made.labels, made.loss_history)


class ReturnsASubclass(Plain):
    def reconstruct(self, access, prepared, **asked):
        made = super().reconstruct(access, prepared, **asked)

        class Mine(Reconstruction):
            pass

        return Mine(made.images, made.labels, made.loss_history)


class LooksWhenItsFactsAreRead(Plain):
    def reconstruct(self, access, prepared, **asked):
        made = super().reconstruct(access, prepared, **asked)

        class Lazy(dict):
            def items(self):
                embedded_digits()
                return super().items()

        made.facts = Lazy(mine=1.0)
        return made


class HasFacts(Plain):
    def reconstruct(self, access, prepared, **asked):
        made = super().reconstruct(access, prepared, **asked)
        made.facts = {"mine": 1.0}
        return made


class WaitsForAnotherThread(Plain):
    """Lets a thread that was there before it, and so might be outside of the wall, do the work."""

    def peek(self, access):
        found, mine = [], os.getppid

        def getppid():
            found.append(embedded_digits())
            return mine()

        os.getppid = getppid
        time.sleep(1.2)
        os.getppid = mine
        if not found:
            raise Nothing


class WaitsForItsOwnThread(Plain):
    def peek(self, access):
        found = []
        thread = threading.Thread(target=lambda: found.append(os.getppid()))
        thread.start()
        thread.join()
        assert found


class TurnsAroundParameters(Plain):
    """Leaves the sum of every parameter as it was."""

    def peek(self, access):
        parameter = next(access.model.parameters())
        parameter.data = parameter.data.flip(0)


class TurnsACopyAround(Plain):
    def peek(self, access):
        next(access.model.parameters()).data.clone().flip(0)


class LiesAboutQueries(BlackBox):
    """Asks 50 times more than it says."""

    def reconstruct(self, access, prepared, **asked):
        made = super().reconstruct(access, prepared, **asked)
        access.query(torch.rand(50, *access.spec.shape))
        access.queries = made.queries = 0
        return made


class Poisons(Plain):
    """Changes what later attacks and their checks would run, if they ran in the same process."""

    def peek(self, access):
        Reconstruction.__post_init__ = lambda made: setattr(
            made, "images", torch.full_like(made.images, 0.25)
        )
        attacker = sys.modules.get("__main__")
        for name in ("_check_promises", "_check_left_as_found"):
            if hasattr(attacker, name):
                setattr(attacker, name, lambda *_: None)


class ScoresItself(Plain):
    """Samples of its prior are a control: drawing them, it replaces the distance of everything."""

    knowledge = Knowledge(STATIC, WHITE_BOX, NO_DATA)
    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"nothing": torch.zeros(1)}

    def prior_samples(self, prepared, *, n, labels, generator):
        for module in list(sys.modules.values()):
            if hasattr(module, "sample_distance"):
                module.sample_distance = lambda *_: None
        return torch.rand((n, 1, 16, 16), generator=generator)


PAIRS: dict[type[Attack], type[Attack]] = {
    OpensTheStore: OpensItsOwnModulesFile,
    WritesToTheStore: WritesToDevNull,
    LoadsSafetensors: LoadsSafetensorsInMemory,
    MapsTheStore: MapsItsOwnFile,
    OpensRelativeToAFolder: OpensItselfRelativeToAFolder,
    AsksItsParents: Queries,
    ImportsTheData: ImportsMathematics,
    LoadsDigits: Clusters,
    ReadsTheEmbeddedFile: ReadsItsOwnFile,
    ReadsTheDataFolder: ReadsItsOwnFile,
    TakesAuxiliaryImages: TakesAuxiliaryImagesAndSaysSo,
    TakesAuxiliaryLabels: TakesAuxiliaryLabelsAndSaysSo,
    QueriesWhilePreparingBlindly: QueriesWhilePreparing,
    StartsAProcess: StartsAThread,
    ReadsAnothersMemory: ReadsItsOwnStatus,
    AsksForTheModel: AsksForTheModelAndSaysSo,
    OpensTheClosure: Queries,
    CollectsGarbage: CollectsItsOwnGarbage,
    LooksWhenItIsLookedAt: ReturnsASubclass,
    LooksWhenItsFactsAreRead: HasFacts,
    WaitsForAnotherThread: WaitsForItsOwnThread,
    TurnsAroundParameters: TurnsACopyAround,
}
"""Each cheat and its honest twin."""

NEED_LANDLOCK = (
    WritesToTheStore,
    LoadsSafetensors,
    MapsTheStore,
    OpensRelativeToAFolder,
    ReadsTheEmbeddedFile,
    ReadsTheDataFolder,
    ReadsAnothersMemory,
    LooksWhenItIsLookedAt,
    LooksWhenItsFactsAreRead,
)
"""Cheats that only the kernel can stop."""
