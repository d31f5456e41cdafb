"""Runs one command and sees that nothing of it outlives its owner.

    python supervise.py GRACE_S SHM_PREFIX CONTAINER FOLDER COMMAND...

The owner holds this process's standard input open. When that closes, because the owner is gone or
has let go, the command is killed. SIGTERM is passed on, and followed by a kill after GRACE_S
seconds. When the command has ended, every process that it started and left is killed, whatever group or
session it has gone to; the shared-memory files /dev/shm/SHM_PREFIX* are removed ("-": none), and so is the
container CONTAINER ("-": none), which the command, a docker CLI, may have left running, and FOLDER, where its
temporary files lie. Exits as the command did.

Run as a script with `-S -E`, so it imports nothing of the project and starts in some 20 ms.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
PR_SET_CHILD_SUBREAPER = 36
REMOVE_S = 30.0

_libc = ctypes.CDLL(None)


def _in_child() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _children() -> list[int]:
    """This process's children, orphans that it has inherited among them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def _kill_all_left() -> None:
    """Kill children until there are none: the children of each come to us, as its subreaper."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _remove(container: str) -> None:
    """The engine takes it away within moments, and it is gone already after a quiet end."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["docker", "rm", "--force", "--volumes", container]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=REMOVE_S)


def _remove_folder(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # something is left in it
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    grace, shm_prefix, container, folder, *command = sys.argv[1:]
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until there is a child to pass it to
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_in_child)

    def terminate(signum: int, frame: object) -> None:
        child.terminate()
        timer = threading.Timer(float(grace), child.kill)
        timer.daemon = True
        timer.start()

    def watch_owner() -> None:
        sys.stdin.buffer.read()
        child.kill()

    signal.signal(signal.SIGTERM, terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=watch_owner, daemon=True).start()
    code = child.wait()
    _kill_all_left()
    _remove_folder(Path(folder))
    if container != "-":
        _remove(container)
    if shm_prefix != "-":
        for path in Path("/dev/shm").glob(f"{shm_prefix}*"):
            path.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the watching thread sits in read(): a normal exit would wait for it
