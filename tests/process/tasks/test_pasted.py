"""The examples of the page on Django and FastAPI, pasted into projects that have models, migrations and routes."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.documented import programs

MODELS = """
from django.db import models


class Order(models.Model):
    number = models.IntegerField()
    state = models.TextField(default="new")


class Payment(models.Model):
    order = models.IntegerField()
"""
SETTINGS = """
import os

SECRET_KEY = "-"
USE_TZ = True
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "site_urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["SITE_DBNAME"],
        "USER": os.environ.get("SITE_USER", ""),
        "HOST": os.environ["SITE_HOST"],
        "PORT": os.environ.get("SITE_PORT", ""),
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "shop"]
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from shop.views import place

urlpatterns = [path("", lambda request: HttpResponse("home")), path("place", place)]
"""
CHECK = """
import django

django.setup()
from django.db import connection
from django.test import Client
from shop.models import Order, Payment
from shop.tasks import pay, tasks

from spanmq.testing import drain

browser = Client()
assert browser.get("/").content == b"home"
assert browser.get("/place").content == b"placed"
pay.send(17)
import billing.tasks

billing.tasks.bill.send(17)
assert drain(tasks) == 3
assert [each.state for each in Order.objects.all()] == ["shipped"]
assert Payment.objects.count() == 1
assert billing.tasks.billed == [17]
tasks.close()
connection.close()
print("as expected")
"""
BILLING = """
from shop.tasks import tasks

billed = []


@tasks.task(queue="Mail")
def bill(number: int) -> None:
    billed.append(number)
"""
FASTAPI = """

@app.get("/")
def home():
    return "home"


import asyncio

import httpx
from shop.tasks import shipped


async def check():
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://a") as http:
        assert (await http.get("/")).json() == "home"
        assert (await http.post("/orders/17")).status_code == 200
        assert await asyncio.wait_for(shipped.get(), 180) == 17


asyncio.run(check())
tasks.close()
engine.dispose()
print("as expected")
"""


def starting(text: str) -> str:
    """Return the program of the page that contains this text."""
    [found] = [each for each in programs("guides/django") if text in each]
    return found


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content, encoding="utf-8")


def run(folder: Path, database: str, *command: str) -> str:
    site = {f"SITE_{name.upper()}": str(value) for name, value in conninfo_to_dict(database).items()}
    own = {"DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": str(folder), "SPANMQ_DSN": database}
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **site, **own},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def site(tmp_path: Path, empty_database: str) -> Path:
    """A project with an app, its models and its first migration, which was applied."""
    write(tmp_path, site_settings=SETTINGS, site_urls="urlpatterns = []\n", shop__models=MODELS)
    for app in ("shop", "billing"):
        (tmp_path / app).mkdir(exist_ok=True)
        (tmp_path / app / "__init__.py").touch()
    run(tmp_path, empty_database, "-m", "django", "makemigrations", "shop")
    run(tmp_path, empty_database, "-m", "django", "migrate")
    return tmp_path


def test_examples_of_django_work_in_a_project_with_migrations(site: Path, empty_database: str) -> None:
    apps = starting("INSTALLED_APPS").replace("[...,", '["django.contrib.contenttypes", "billing",')
    head, _, block = starting("# shop/views.py").partition("with ")
    view = f"with {block}".replace("create(...)", "create(number=17)")
    write(
        site,
        site_settings=SETTINGS + apps,
        site_urls=URLS,
        shop__tasks=starting("# shop/tasks.py"),
        shop__views=f"{head}\nfrom django.http import HttpResponse\n\n\ndef place(request):\n"
        f"{indent(view, '    ')}\n    return HttpResponse('placed')\n",
        billing__tasks=BILLING,
        check=CHECK,
    )
    written = run(site, empty_database, "-m", "django", "spanmq_queues", "shop")
    assert "0002_queues.py: it creates orders, Mail." in written
    again = run(site, empty_database, "-m", "django", "spanmq_queues", "shop", "shop.tasks:tasks")
    assert again == "Migrations create all queues of the tasks.\n"
    run(site, empty_database, "-m", "django", "migrate")
    assert run(site, empty_database, "check.py") == "as expected\n"
    # The app may have further migrations of its own.
    run(site, empty_database, "-m", "django", "makemigrations", "shop", "--empty")
    run(site, empty_database, "-m", "django", "makemigrations", "--check")


def test_example_of_fastapi_works_in_an_application_with_routes(tmp_path: Path, database: str) -> None:
    tasks = (
        'import asyncio\nfrom spanmq.tasks import Tasks\n\ntasks = Tasks("orders", create=True)\n'
        "shipped = asyncio.Queue()\n\n\n@tasks.task\nasync def ship(number: int) -> None:\n"
        "    await shipped.put(number)\n"
    )
    engine = (
        "import os\n\nimport psycopg\nfrom sqlalchemy import create_engine\n\n"
        'engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(os.environ["SPANMQ_DSN"]))\n'
    )
    write(
        tmp_path,
        shop____init__="",
        shop__tasks=tasks,
        shop__database=engine,
        main=starting("# a worker as long as") + FASTAPI,
    )
    assert run(tmp_path, database, "main.py") == "as expected\n"
