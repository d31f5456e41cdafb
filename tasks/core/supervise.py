"""Runs one command and sees that nothing of it outlives its owner.

    python supervise.py GRACE_S SHM_PREFIX COMMAND...

The owner holds this process's standard input open. When that closes, because the owner is gone or
has let go, the command's whole process group is killed. SIGTERM is passed on, and followed by a kill
after GRACE_S seconds. When the command has ended, what is left of its group is killed and
the shared-memory files /dev/shm/SHM_PREFIX* are removed ("-": none). Exits as the command did.

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


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    grace_s, shm_prefix, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent
    )

    def kill_group() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def terminate(signum: int, frame: object) -> None:
        child.terminate()
        timer = threading.Timer(grace_s, kill_group)
        timer.daemon = True
        timer.start()

    def watch_owner() -> None:
        sys.stdin.buffer.read()
        kill_group()

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch_owner, daemon=True).start()
    code = child.wait()
    kill_group()
    if shm_prefix != "-":
        for path in Path("/dev/shm").glob(f"{shm_prefix}*"):
            path.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the watching thread sits in read(): a normal exit would wait for it
