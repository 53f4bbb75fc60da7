"""pysqlbox's schema. After an upgrade of pysqlbox, add another such migration."""

from django.db import migrations

from pysqlbox.contrib.django import deploy, refuse


class Migration(migrations.Migration):
    """Deploys; going back is refused."""

    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(deploy, refuse)]
