"""Register what the admin shows. Nothing is created, and Django compares no fields of such models."""

from __future__ import annotations

from django.db import migrations, models

KEYS = {"Queue": "name", "DeadLetter": "dead_letter_id", "Schedule": "name"}


class Migration(migrations.Migration):  # type: ignore[misc]
    """The models, without their columns."""

    dependencies = [("spanmq", "0001_schema")]  # noqa: RUF012, Django's own style
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name,
            [(key, models.TextField(primary_key=True))],
            {"managed": False, "base_manager_name": "objects", "default_permissions": ("view",)},
        )
        for name, key in KEYS.items()
    ]
