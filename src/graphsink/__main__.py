"""``python -m graphsink`` is the ``graphsink`` command."""

from graphsink.cli.main import main

main()
