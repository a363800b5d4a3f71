"""Install the schema; later versions are installed after each `migrate`."""

from __future__ import annotations

from django.db import migrations

from spanmq.django.operations import InstallSchema


class Migration(migrations.Migration):  # type: ignore[misc]
    """The first one, which migrations that create queues depend on."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012, Django's own style
    operations = [InstallSchema()]  # noqa: RUF012
