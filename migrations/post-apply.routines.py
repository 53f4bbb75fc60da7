"""Routines and views: those whose text changed, and all of them when tables changed."""

from yoyo import step

from pysqlbox.deploy.steps import apply_routines, refuse_rollback

steps = [step(apply_routines, refuse_rollback)]
