"""``python -m pysqlbox.metrics alerts``, or ``dashboard``, prints what is shipped for them."""

from __future__ import annotations

import sys

import click

from pysqlbox.metrics.shipped import alerts, dashboard

_FILES = {"alerts": alerts, "dashboard": dashboard}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("what", type=click.Choice(sorted(_FILES)))
def main(what: str) -> None:
    """Print the alert rules for Prometheus (YAML), or the dashboard for Grafana (JSON).

    \b
    Examples:
      python -m pysqlbox.metrics alerts > /etc/prometheus/rules/pysqlbox.yml
      python -m pysqlbox.metrics dashboard > pysqlbox.json
    """
    click.echo(_FILES[what](), nl=False)


if __name__ == "__main__":
    main(prog_name=f"{sys.executable.rpartition('/')[2]} -m pysqlbox.metrics")
