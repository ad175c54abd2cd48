"""The command line `kvstress`, also `python -m stress`.

Exit codes are a contract (see each command). Whatever is wrong with the command line, a configuration, a
trace or a folder is one line on stderr and exit 2. A machine that can't start the ranks is one line and exit
3, and a defect of this program its traceback and exit 3: 1 always means that a result was reached.
Help imports neither torch nor ray.
"""

from __future__ import annotations

import sys
import traceback

import click

from stress.command.compare import compare
from stress.command.doctor import doctor
from stress.command.interrupt import interruptible
from stress.command.matrix import matrix
from stress.command.nightly import nightly
from stress.command.report import report
from stress.command.repro import repro
from stress.command.run import run
from stress.command.streams import readers_may_leave
from stress.command.target import target
from stress.command.trace import trace
from stress.launch.ending import leave

USAGE = 2
INFRASTRUCTURE = 3
INTERRUPTED = 130


@click.group(
    no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def kvstress() -> None:
    """Stress-tests the KV-cache allocators of LLM servers, one allocator per GPU rank.

    Start with `kvstress repro` (seconds, no GPU), then `kvstress run smoke --launcher local`.
    """


for _command in (run, compare, nightly, matrix, repro, trace, target, report, doctor):
    kvstress.add_command(_command)


def main(args: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    with readers_may_leave():
        return leave(_main(args))


def _main(args: list[str] | None) -> int:
    for text in sys.argv[1:] if args is None else args:
        if any("\ud800" <= character <= "\udfff" for character in text):
            # Manifest and verdict quote it, and JSON is UTF-8.
            return _refuse(f"kvstress: {text!r}: is no UTF-8; name it in UTF-8")
    try:
        with interruptible():
            code = kvstress.main(args=args, prog_name="kvstress", standalone_mode=False) or 0
            if sys.stdout is not None:  # closed by who started this
                sys.stdout.flush()
            return code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "kvstress"
        return _refuse(f"{path}: {error.format_message()}", f"see {path} --help")
    except click.ClickException as error:
        return _refuse(f"kvstress: {error.format_message()}")
    except (click.Abort, KeyboardInterrupt):
        click.echo("kvstress: interrupted before any rank was started", err=True)
        return INTERRUPTED
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    from stress.command.errors import infrastructure_errors, user_errors

    if isinstance(error, user_errors()):
        return _refuse(f"kvstress: {error}")
    if isinstance(error, infrastructure_errors()):
        click.echo(_one_line(f"kvstress: {error}"), err=True)
    else:
        click.echo(f"{traceback.format_exc()}kvstress: this is a defect of kvstress itself", err=True)
    return INFRASTRUCTURE


def _refuse(message: str, cure: str = "") -> int:
    line = _one_line(message)
    click.echo(f"{line.rstrip('.')}; {cure}" if cure else line, err=True)
    return USAGE


def _one_line(message: str) -> str:
    return " ".join(message.split())


if __name__ == "__main__":
    sys.exit(main())
