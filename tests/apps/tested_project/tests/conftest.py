import os

import django
import pytest

os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
django.setup()


@pytest.fixture(scope="session", autouse=True)
def tables():
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"
