"""The tables as first released: every file under ``sql/<dialect>/tables`` whose name has no version.

A later migration ``NNNN.what.py`` applies the files ``NNNN_what.sql``; released files are not edited.
"""

from yoyo import step

from pysqlbox.deploy.steps import apply_tables, refuse_rollback

__depends__: set[str] = set()

steps = [step(apply_tables(1), refuse_rollback)]
