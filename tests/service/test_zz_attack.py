import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import psycopg, pytest
from psycopg.conninfo import make_conninfo
from tests.cli.program import ask, do, wait_until
from tests.service.running import service, token, patient
from tests.service.sqs.conftest import client_of
from spanmq.client import Client


@pytest.mark.parametrize("protocol", ["http", "sqs"])
@pytest.mark.parametrize("what", ["drop", "recreate", "revoke", "purge", "pause"])
def test_x(orders: str, tmp_path: Path, protocol: str, what: str) -> None:
    role = "svc_" + str(time.time_ns())
    with psycopg.connect(orders, autocommit=True) as c:
        c.execute(f"create role {role} login")
        c.execute(f"select spanmq.grant_all('{role}')") if False else None
    with Client(orders) as client:
        dsn = orders
        if what == "revoke":
            client.grants.service(role) if hasattr(client.grants, "service") else None
            print([m for m in dir(client.grants) if not m.startswith("_")])
        secret, watcher = token(orders, "mine", verbs="receive"), token(orders, "watcher")
        with (
            service(dsn, tmp_path, "--wait-max", 3600, tokens=True) as running,
            running.client(secret) as mine,
            running.client(watcher) as watching,
            ThreadPoolExecutor(1) as pool,
        ):
            if protocol == "http":
                poll = pool.submit(mine.post, "/v1/queues/orders/receive", json={"wait": 3600})
            else:
                made = client.admin.keys.create(verbs=["receive"])
                sqs = client_of(
                    running.address,
                    {"access_key_id": made.access_key_id, "secret_access_key": str(made.secret)},
                )
                poll = pool.submit(
                    sqs.receive_message, QueueUrl=f"{running.address}/000000000000/orders", WaitTimeSeconds=20
                )
            wait_until(lambda: "spanmq_requests_waiting 1.0" in watching.get("/metrics").text)
            if what == "drop":
                do(orders, "select pgmq.drop_queue('orders')")
            if what == "recreate":
                with psycopg.connect(orders) as c:
                    c.execute("select pgmq.drop_queue('orders')")
                    c.execute("select pgmq.create('orders')")
                client.send("orders", 1)
            if what == "pause":
                client.queues.pause("orders")
                client.send("orders", 1)
                time.sleep(1)
                client.queues.resume("orders")
            if what == "purge":
                client.send("orders", 1, delay=1)
                client.queues.purge("orders")
                client.send("orders", 2)
            t = time.time()
            try:
                r = poll.result()
                print("RESULT", protocol, what, r if protocol == "sqs" else (r.status_code, r.text[:300]))
            except Exception as e:
                print("RAISED", protocol, what, type(e), str(e)[:300])
            print(time.time() - t)
            time.sleep(0.3)
            if what != "drop":
                print(client.queues.metrics("orders"))
