"""The table of what was shipped, and the queue."""

from django.db import migrations

from spanmq.django.operations import CreateQueues


class Migration(migrations.Migration):  # type: ignore[misc]
    dependencies = [("spanmq", "0001_schema")]  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.RunSQL("create table shipped (number int)"),
        CreateQueues("orders", "mail"),
    ]
