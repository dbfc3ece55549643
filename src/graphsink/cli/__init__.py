"""The ``graphsink`` command."""
