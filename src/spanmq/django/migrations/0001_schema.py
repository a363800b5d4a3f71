"""Install the schema, and register what the admin shows; later versions are installed after each `migrate`."""

from django.db import migrations, models

from spanmq.django.operations import InstallSchema

KEYS = {"Queue": "name", "DeadLetter": "dead_letter_id", "Schedule": "name"}
PERMISSIONS = {"DeadLetter": ("view", "change", "delete")}


class Migration(migrations.Migration):  # type: ignore[misc]
    """The first one, which migrations that create queues depend on."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012, Django's own style
    operations = [  # noqa: RUF012
        InstallSchema(),
        # Nothing is created for these, and Django compares no fields of such models.
        *(
            migrations.CreateModel(
                name,
                [(key, models.TextField(primary_key=True))],
                {
                    "managed": False,
                    "base_manager_name": "objects",
                    "default_permissions": PERMISSIONS.get(name, ("view",)),
                },
            )
            for name, key in KEYS.items()
        ),
    ]
