"""What pyproject.toml cannot say: how kernels are compiled, and what to do where they cannot be."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from setuptools import setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ADVICE = """\
error: {why}
The kernels of resumerge are written in C, and could not be compiled. Install a C compiler and the
headers of Python, and try again:
  Debian, Ubuntu:  apt install gcc python3-dev
  Fedora:          dnf install gcc python3-devel
  macOS:           xcode-select --install"""


class Build(build):
    """Compiles first: what goes wrong then is all that is printed."""

    sub_commands = sorted(build.sub_commands, key=lambda command: command[0] != "build_ext")


class BuildExtension(build_ext):
    """Says what to install where there is no compiler, or nothing for it to compile against.

    The kernels are compiled once for each kind of processor: all at the same time.
    """

    def build_extensions(self):
        compile_in_turn = self.compiler.compile

        def compile_all(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                done = pool.map(lambda source: compile_in_turn([source], **options), sources)
                return list(chain.from_iterable(done))

        self.compiler.compile = compile_all
        try:
            super().build_extensions()
        except (BaseError, CCompilerError) as error:
            raise SystemExit(ADVICE.format(why=error)) from error


setup(cmdclass={"build": Build, "build_ext": BuildExtension})
