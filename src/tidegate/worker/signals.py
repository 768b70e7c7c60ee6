"""What each signal means to a supervisor, and how the processes below it outlive those meant for it."""

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
"""Drain; the second time, give running tasks back now."""
RELEASE = signal.SIGQUIT
"""Give running tasks back now."""
RELOAD = signal.SIGHUP
"""Start the processes anew with the present code."""
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
"""For the application: sent on to every pool process, which does nothing about them unless it says so."""

_HANDLED = (*STOP, RELEASE, RELOAD, *FORWARDED)
_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh"}
_SHELL_ENDED = signal.SIGALRM
"""Sent by the kernel; not SIGTERM, of which a second one has a meaning."""
_PR_SET_PDEATHSIG = 1


def reset_inherited_signals() -> None:
    """Undo what a parent left behind over exec: blocked signals, and an ignored SIGCHLD.

    A blocked SIGTERM would never stop us; where SIGCHLD is ignored, the kernel reaps our children and nobody
    learns how they ended. What we start inherits the cleared state. Call it in the main thread.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ignore_group_signals() -> None:
    """Do nothing about signals that are meant for the supervisor, which has other ways to tell us.

    By a handler that does nothing rather than by ignoring them: programs that are started from here would
    inherit that, and could not be terminated. Forked children would inherit the handler, hence the hooks.
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
    """Call these in the running loop when signals come.

    SIGHUP of a terminal that goes away means stop; where it is ignored, as under nohup, it stays so.

    Args:
        stop: Told of SIGTERM and SIGINT.
        release: Told of SIGQUIT.
        reload: Told of SIGHUP.
        forward: Told of SIGUSR1 and SIGUSR2.
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
    """Stop when the shell of `sh -c "…"` ends that runs nothing but us and, unlike us, is sent the signals.

    Some shells stay between a process manager and its command, and die of SIGTERM without passing it on. Not
    for a command in the background (`&`, nohup), which is meant to outlive its shell. Nothing helps where the
    shell is process 1: that does not even die. So there it is warned of.

    Call it before `install_handlers`, which handles what a command in the background ignores.

    Args:
        stop: Called in the running loop.
    """
    parent = os.getppid()
    if not _is_shell_for_one_command(parent):
        return
    if parent == 1:
        log.warning(
            "process 1 is a shell, which passes no SIGTERM on to this process: write `exec` before it"
        )
    elif sys.platform == "linux" and signal.SIG_IGN not in map(signal.getsignal, (signal.SIGINT, RELOAD)):
        asyncio.get_running_loop().add_signal_handler(_SHELL_ENDED, stop)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _SHELL_ENDED, 0, 0, 0)
        if os.getppid() != parent:
            stop()  # it ended before we could ask


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
    """Keep back what a forked child is sent before it is set up."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def _restore_defaults() -> None:
    """Undo `ignore_group_signals` where it still holds: a forked child is the application's own."""
    for number in _HANDLED:
        if signal.getsignal(number) is _do_nothing:
            usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    _unblock()
