"""Signal handling: what each signal means to the supervisor, and how its child processes ignore signals."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

log = logging.getLogger("tidegate.supervisor")

STOP = (signal.SIGTERM, signal.SIGINT)
"""Signals that start a drain. A second one releases running tasks at once."""
RELEASE = signal.SIGQUIT
"""Signals that release running tasks at once."""
RELOAD = signal.SIGHUP
"""Signals that restart the processes with the current code."""
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals for the application. Every pool process gets them, and ignores them unless the application sets a
handler."""

_HANDLED = (*STOP, RELEASE, RELOAD, *FORWARDED)
_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh"}
_SHELL_ENDED = signal.SIGALRM
"""The signal that the kernel sends when the shell ends. The signal is not SIGTERM, because a second SIGTERM
has its own meaning."""
_PR_SET_PDEATHSIG = 1


def reset_inherited_signals() -> None:
    """Reset signal state that a parent process passed on: blocked signals, and an ignored SIGCHLD.

    A blocked SIGTERM would never stop us. If SIGCHLD is ignored, the kernel reaps our children, and we cannot
    learn how they ended. Processes that we start inherit the reset state. Call it in the main thread.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ignore_group_signals() -> None:
    """Take no action on signals meant for the supervisor; it controls this process by messages.

    This sets a handler that does nothing instead of ignoring the signals. Programs started from here would
    inherit ignored signals and could not be terminated. Forked children would inherit the handler, so fork
    hooks remove it.
    """
    reset_inherited_signals()
    for number in _HANDLED:
        signal.signal(number, _do_nothing)
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_restore_defaults)


def install_handlers(
    *,
    stop: Callable[[signal.Signals], None],
    release: Callable[[], None],
    reload: Callable[[], None],
    forward: Callable[[signal.Signals], None],
) -> None:
    """Call these functions in the running loop when signals come.

    With a terminal, SIGHUP means that the terminal is gone: the service stops. If SIGHUP is ignored, as under
    nohup, it stays ignored.

    Args:
        stop: Called for SIGTERM and SIGINT.
        release: Called for SIGQUIT.
        reload: Called for SIGHUP.
        forward: Called for SIGUSR1 and SIGUSR2.
    """
    loop = asyncio.get_running_loop()
    for number in STOP:
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(RELEASE, release)
    for number in FORWARDED:
        loop.add_signal_handler(number, forward, number)
    if signal.getsignal(RELOAD) is signal.SIG_IGN:
        return
    if _has_terminal():
        loop.add_signal_handler(RELOAD, stop, RELOAD)
    else:
        loop.add_signal_handler(RELOAD, reload)


def stop_when_shell_exits(stop: Callable[[], None]) -> None:
    """Stop when our parent, a shell that was started as `sh -c "…"` only to run us, ends.

    Some shells stay between a process manager and its command, and die of SIGTERM without passing the signal
    on. A command in the background (`&`, nohup) is excluded, because it is meant to outlive its shell. If the
    shell is process 1, SIGTERM does not even end the shell; then a warning is logged.

    Call it before `install_handlers`, which handles the signals that a background command ignores.

    Args:
        stop: Called in the running loop.
    """
    parent = os.getppid()
    if not _is_shell_for_one_command(parent):
        return
    if parent == 1:
        log.warning("process 1 is a shell that does not pass SIGTERM on: write `exec` before it")
    elif sys.platform == "linux" and signal.SIG_IGN not in map(signal.getsignal, (signal.SIGINT, RELOAD)):
        asyncio.get_running_loop().add_signal_handler(_SHELL_ENDED, stop)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _SHELL_ENDED, 0, 0, 0)
        if os.getppid() != parent:
            stop()  # the shell ended before the call above


def _is_shell_for_one_command(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return len(words) > 2 and Path(os.fsdecode(words[0])).name in _SHELLS and words[1] == b"-c"


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    return


def _block() -> None:
    """Delay signals to a forked child until it is set up."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def _restore_defaults() -> None:
    """Undo `ignore_group_signals` in a forked child, which belongs to the application."""
    for number in _HANDLED:
        if signal.getsignal(number) is _do_nothing:
            usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    _unblock()
