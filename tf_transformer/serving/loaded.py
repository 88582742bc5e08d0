"""The loaded versions of a served model: picked up, used, replaced and freed.

A request uses one version from start to end, so that no answer mixes two, and a version is
freed only when nothing uses it.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.errors import UserError
from tf_transformer.serving.batcher import BatchLimits, Observer
from tf_transformer.serving.lanes import Lanes, Meter, token_limits
from tf_transformer.serving.session import SavedModelSession, try_signatures

logger = logging.getLogger(__name__)

KEPT = 2  # versions that stay loaded: the newest, and the previous one to fall back on
POLL_SECONDS = 1.0


class UnknownVersionError(Exception):
    """There is no such version."""


class NotReadyError(Exception):
    """No version is loaded at the moment."""


@dataclass(eq=False)
class LoadedVersion:
    """A version that answers requests: its session, and the lanes in front of it."""

    number: int
    session: SavedModelSession
    lanes: Lanes
    users: int = 0
    stamp: object = None  # of the files it was loaded from

    def close(self, seconds: float | None = None) -> None:
        """Ends running computations, and frees the model."""
        self.lanes.refuse()
        self.session.close()
        self.lanes.close(seconds)


def load_version(
    number: int,
    path: Path,
    limits: BatchLimits,
    observer: Observer | None = None,
    open_session: Callable[[Path], SavedModelSession] = SavedModelSession,
) -> LoadedVersion:
    """Loads a SavedModel, and runs each of its signatures once, so that it is ready.

    Args:
        number: version number.
        path: folder of the SavedModel.
        limits: limits of each lane, except `positions`, which comes from the model's card.
        observer: notified of each request and batch.
        open_session: loads the folder.

    Raises:
        UserError: if the model cannot be loaded or used, or does not take text.
    """
    session = open_session(path)
    try:
        if set(session.signatures) == {"tokens"}:  # neither the page nor clients expect ids
            raise UserError(
                f"`serve` needs a model that takes text. Received: {path}, exported with "
                "--no-text. Export it without that option, or serve it with TF Serving."
            )
        meter = Meter(session, token_limits(path))
        try_signatures(session, path)
    except BaseException:
        session.close()
        raise
    limits = dataclasses.replace(limits, positions=meter.limits.group)
    return LoadedVersion(number, session, Lanes(session, meter, limits, observer))


class LoadedVersions:
    """Follows the version folders of a model: loads the newest, keeps the previous one.

    If the files of the newest change, they are loaded in its place. If the newest folder
    disappears, the previous version answers again. A version that cannot be loaded is reported
    once, and retried when its files change; the others still answer.

    Args:
        find: returns the folders by number.
        load: loads one of them; raises UserError if it cannot.
        name: the model's name, for messages.
    """

    def __init__(
        self,
        find: Callable[[], dict[int, Path]],
        load: Callable[[int, Path], LoadedVersion],
        name: str = "model",
    ) -> None:
        self._find, self._load, self._name = find, load, name
        self._loaded: dict[int, LoadedVersion] = {}
        self._loading: int | None = None
        self._failed: dict[int, tuple[object, str]] = {}  # files' stamp, and the reason
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.failure: Exception | None = None

    @property
    def ready(self) -> bool:
        """True while a version is loaded and its lanes are running."""
        with self._lock:
            newest = max(self._loaded, default=None)
            return newest is not None and self._loaded[newest].lanes.alive

    @property
    def alive(self) -> bool:
        """True unless no version could be loaded, or the lanes of a loaded one have stopped."""
        with self._lock:
            running = all(version.lanes.alive for version in self._loaded.values())
            return self.failure is None and running

    def numbers(self) -> list[int]:
        """Returns the numbers of the loaded versions, the newest last."""
        with self._lock:
            return sorted(self._loaded)

    def waiting(self) -> dict[str, int]:
        """Returns the rows in the queues of all versions, by lane."""
        with self._lock:
            counts = [version.lanes.waiting() for version in self._loaded.values()]
        return {lane: sum(count[lane] for count in counts) for lane in ("short", "long")}

    def states(self) -> dict[int, tuple[str, str]]:
        """Returns the state of each version in TF Serving's words, and its error or ""."""
        with self._lock:
            states = {number: ("END", reason) for number, (_, reason) in self._failed.items()}
            if self._loading is not None:
                states[self._loading] = ("LOADING", "")
            return states | {number: ("AVAILABLE", "") for number in self._loaded}

    @contextmanager
    def use(self, number: int | None = None) -> Iterator[LoadedVersion]:
        """Yields a loaded version, by default the newest; it stays loaded inside the block.

        Raises:
            UnknownVersionError: if that version is not loaded.
            NotReadyError: if no version is loaded.
        """
        with self._lock:
            chosen = max(self._loaded, default=None) if number is None else number
            if chosen is None:
                raise NotReadyError
            if chosen not in self._loaded:
                loaded = ", ".join(map(str, sorted(self._loaded))) or "none yet"
                raise UnknownVersionError(
                    f"There is no version {number} of {self._name}. Loaded: {loaded}."
                )
            version = self._loaded[chosen]
            version.users += 1
        try:
            yield version
        finally:
            with self._lock:
                version.users -= 1

    def follow(self, announce: Callable[[int], None]) -> threading.Thread:
        """Starts a thread that calls `update` every `POLL_SECONDS` until `close`."""

        def watch() -> None:
            try:
                while not self._stopped.is_set():
                    self.update(announce)
                    self._stopped.wait(POLL_SECONDS)
            except Exception as error:
                self.failure = error

        thread = threading.Thread(target=watch, name="versions", daemon=True)
        thread.start()
        return thread

    def update(self, announce: Callable[[int], None] = lambda number: None) -> None:
        """Loads the newest folder that can be loaded, and frees versions no longer kept.

        Args:
            announce: called with the number of a newly loaded version.

        Raises:
            UserError: if no version is loaded and none can be.
            OSError: if the folders cannot be listed and no version is loaded.
        """
        try:
            folders = self._find()
        except OSError:  # such as a network error, or a folder that is just being removed
            if not self._loaded:
                raise
            return
        self._failed = {
            number: (stamp, reason)
            for number, (stamp, reason) in self._failed.items()
            if number in folders and _stamp(folders[number]) == stamp
        }
        untried = sorted(folders.keys() - self._failed.keys())
        while untried and not self._is_loaded(untried[-1], folders[untried[-1]]):
            number = untried.pop()
            if self._add(number, folders[number], announce, is_last=not untried):
                break
        if present := sorted(self._loaded.keys() & folders.keys()):
            for number in self._loaded.keys() - set(present[-KEPT:]):
                self._free(number)

    def _is_loaded(self, number: int, path: Path) -> bool:
        version = self._loaded.get(number)
        return version is not None and _stamp(path) in (version.stamp, None)

    def _add(
        self, number: int, path: Path, announce: Callable[[int], None], is_last: bool
    ) -> bool:
        """Loads a version and returns whether that worked; raises if no other is available."""
        self._loading, stamp = number, _stamp(path)  # files may change while it is loaded
        try:
            version = self._load(number, path)
        except UserError as error:
            if is_last and not self._loaded:
                raise
            with self._lock:
                self._failed[number] = (stamp, str(error))
            logger.warning("version %d of %s is not used: %s", number, self._name, error)
            return False
        finally:
            self._loading = None
        version.stamp = stamp
        with self._lock:
            replaced = self._loaded.get(number)
            self._loaded[number] = version
        announce(number)
        if replaced:
            self._end(replaced)
        return True

    def _free(self, number: int) -> None:
        with self._lock:
            version = self._loaded.pop(number)
        self._end(version)

    def _end(self, version: LoadedVersion) -> None:
        while version.users and not self._stopped.is_set():  # it gets no new users
            time.sleep(0.05)
        version.close(1.0)
        logger.info("version %d of %s is freed", version.number, self._name)

    def refuse(self) -> None:
        """Stops accepting requests and new versions; queued requests are still computed."""
        self._stopped.set()
        with self._lock:
            for version in self._loaded.values():
                version.lanes.refuse()

    def close(self, seconds: float | None = None) -> None:
        """Ends running computations, and frees all versions."""
        self.refuse()
        with self._lock:
            for version in self._loaded.values():
                version.close(seconds)


def _stamp(path: Path) -> object:
    """Returns a value that changes when the files in a folder do."""
    try:
        files = [(str(file), file.stat()) for file in sorted(path.rglob("*"))]
    except OSError:  # the folder is just being removed
        return None
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
