"""``python -m drlib``: the ``drlib`` command."""

from drlib.cli import main

main()
